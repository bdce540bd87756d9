"""The base model of a checkpoint, and the settings that a checkpoint needs of params.yaml."""

from pathlib import Path
from typing import Any

from flows.errors import WrongArgument
from flows.scoring.asked_models import AskedModel, asked_models
from tasks.core.config.policy import ALL_LINEAR
from tasks.core.policies.adapter_file import read_settings
from tasks.core.policies.chat_settings import read_chat_settings
from tasks.core.policies.checkpoint_files import ADAPTER_CONFIG, holds_adapter
from tasks.core.records.files import ArtifactError, read_json


class NoBase(WrongArgument):
    """A checkpoint says of no base model; the message says how to name one."""


def base_of(checkpoint: Path, named: str | None) -> AskedModel:
    """Return the base model of a checkpoint: the one `named`, else the one that its files or its run tell.

    Raises NoBase and UnknownModel.
    """
    word = named or _of_run(checkpoint) or _of_version(checkpoint) or _of_adapter(checkpoint)
    if word is None:
        raise NoBase(f"{checkpoint}: names no base model; add --base MODEL")
    found = asked_models([word])[0]
    if found.kind != "model":
        raise NoBase(f"{word}: the base of a checkpoint is a model with its tokenizer, not {found.kind}")
    return found


def trained_part(checkpoint: Path) -> dict[str, Any]:
    """Return the knobs of `policy` that fit a checkpoint. Raises ArtifactError for an adapter that is no plain LoRA."""
    if not holds_adapter(checkpoint):
        return {"trained": "full"}
    path = checkpoint / ADAPTER_CONFIG
    rank, alpha, scaling, targets = read_settings(path)
    if alpha != int(alpha) or scaling != alpha / rank:
        raise ArtifactError(f"{path}: lora_alpha must be a whole number, and use_rslora false")
    if targets != ALL_LINEAR and isinstance(targets, str):
        raise ArtifactError(f"{path}: target_modules must be a list of names, not {targets!r}")
    return {"trained": "lora", "lora": {"rank": rank, "alpha": int(alpha), "targets": targets}}


def base_knobs(base: AskedModel) -> dict[str, Any]:
    """Return the knobs of `policy` that name a base model; a folder keeps its chat settings. Raises ArtifactError."""
    folder = Path(base.name)
    chat = read_chat_settings(folder).model_dump(mode="json") if folder.is_dir() else {}
    return {
        "source": base.name,
        "revision": base.at or None,
        "context_length": None,
        "warm_start": None,
        **({"chat": chat} if chat else {}),
    }


def _of_run(checkpoint: Path) -> str | None:
    """Return the base policy of the run around a checkpoint data/iterations/KEY/policy."""
    if checkpoint.name != "policy" or checkpoint.parent.parent.name != "iterations":
        return None
    folder = checkpoint.parents[2] / "policy"
    return str(folder) if folder.is_dir() else None


def _of_version(checkpoint: Path) -> str | None:
    """Return the base model that a registered version holds or names in its base.json."""
    if not (checkpoint / "base.json").is_file():
        return None
    base = read_json(checkpoint / "base.json")
    if base.get("inside"):
        return str(checkpoint / base["name"])
    return f"{base['name']}@{base['revision']}" if base.get("revision") else None


def _of_adapter(checkpoint: Path) -> str | None:
    """Return the base model that PEFT noted in an adapter."""
    path = checkpoint / ADAPTER_CONFIG
    settings = read_json(path) if path.is_file() else {}
    name, revision = settings.get("base_model_name_or_path"), settings.get("revision")
    return f"{name}@{revision}" if name and revision and not Path(name).is_dir() else name
