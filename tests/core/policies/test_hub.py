"""A base policy from a hub: a server with the Hugging Face hub's protocol, on a local socket."""

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tasks.core.config.params import parse_params
from tasks.core.config.stage_inputs import BasePolicyInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.policies.architecture import TinyQwen2, build_tokenizer, new_model
from tasks.core.records.files import ArtifactError, digest
from tasks.core.records.layout import Layout
from tasks.prepare_policy import prepare_policy

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
