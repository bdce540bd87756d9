"""What words on the command line mean, and adapters that cannot be played."""

from pathlib import Path
from typing import Any

import pytest

from flows.scoring.asked_models import AskedModel, NoBase, UnknownModel, asked_models, base_of, trained_part
from tasks.core.records.files import ArtifactError, write_json

COMMIT = "0" * 40


def folder(path: Path, *files: str) -> Path:
    path.mkdir(parents=True)
    for name in files:
        write_json(path / name, {})
    return path


def test_words_are_models(tmp_path: Path) -> None:
    whole = folder(tmp_path / "whole", "config.json", "tokenizer.json")
    weights = folder(tmp_path / "weights", "config.json")
    adapter = folder(tmp_path / "data" / "iterations" / "i016" / "policy", "adapter_config.json")
    words = [
        "http://h:1/v1/",
        "m",
        str(whole),
        str(weights),
        str(adapter),
        f"org/name@{COMMIT}",
        "models:/n/3",
        "models:/n@a",
    ]
    found = asked_models([*words, "pip:package==1"])
    assert [(model.kind, model.short, model.at) for model in found] == [
        ("api", "m", "http://h:1/v1"),
        ("model", "whole", ""),
        ("weights", "weights", ""),
        ("adapter", "i016", ""),
        ("model", "name", COMMIT),
        ("version", "n-3", "3"),
        ("version", "n-a", "a"),
        ("model", "package==1", ""),
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["http://h:1/v1"], "after a server's URL comes the model's name"),
        (["http://h:1/v1", "https://h"], "after a server's URL comes the model's name"),
        (["models:/n"], r"is models:/NAME/3 or models:/NAME@champion"),
        (["data/nothing"], "no such model; name a folder, a hub id"),
        (["word"], "no such model"),
        (["org/name", "org/name"], "named twice"),
    ],
)
def test_other_words_are_none(words: list[str], said: str) -> None:
    with pytest.raises(UnknownModel, match=said):
        asked_models(words)


def test_a_folder_without_a_model_is_none(tmp_path: Path) -> None:
    with pytest.raises(UnknownModel, match="holds no model"):
        asked_models([str(tmp_path)])


def test_a_checkpoint_finds_its_base_in_the_order_of_certainty(tmp_path: Path) -> None:
    base = folder(tmp_path / "data" / "policy", "config.json", "tokenizer.json")
    other = folder(tmp_path / "other", "config.json", "tokenizer.json")
    checkpoint = folder(tmp_path / "data" / "iterations" / "i002" / "policy", "adapter_config.json")
    assert base_of(checkpoint, None) == AskedModel("model", str(base), str(base))
    assert base_of(checkpoint, str(other)).name == str(other)
    adapter = folder(tmp_path / "adapter")
    write_json(adapter / "adapter_config.json", {"base_model_name_or_path": "org/name", "revision": COMMIT})
    assert (base_of(adapter, None).name, base_of(adapter, None).at) == ("org/name", COMMIT)
    write_json(adapter / "base.json", {"name": "../other", "inside": True, "revision": None})
    assert Path(base_of(adapter, None).name).resolve() == other
    with pytest.raises(NoBase, match="not adapter"):
        base_of(checkpoint, str(adapter))


def test_an_adapter_that_names_no_base_says_so(tmp_path: Path) -> None:
    write_json(tmp_path / "adapter_config.json", {"base_model_name_or_path": None})
    with pytest.raises(NoBase, match="add --base MODEL"):
        base_of(tmp_path, None)


PLAIN = {
    "peft_type": "LORA",
    "r": 4,
    "lora_alpha": 8.0,
    "target_modules": ["q_proj"],
    "bias": "none",
    "use_dora": False,
}


def test_an_adapter_brings_its_own_sizes(tmp_path: Path) -> None:
    write_json(tmp_path / "adapter_config.json", PLAIN)
    assert trained_part(tmp_path) == {"trained": "lora", "lora": {"rank": 4, "alpha": 8, "targets": ["q_proj"]}}


@pytest.mark.parametrize(
    "changed", [{"use_rslora": True}, {"lora_alpha": 8.5}, {"target_modules": ".*q_proj"}, {"target_modules": []}]
)
def test_an_adapter_that_no_knobs_describe_is_refused_by_name(tmp_path: Path, changed: dict[str, Any]) -> None:
    write_json(tmp_path / "adapter_config.json", PLAIN | changed)
    with pytest.raises(ArtifactError, match=next(iter(changed))):
        trained_part(tmp_path)
