"""Models made ready to be played: which base model, which checkpoint, which parameters."""

import re
import shutil
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from flows.errors import WrongArgument
from flows.scoring.asked_models import AskedModel, asked_models
from flows.scoring.asked_params import asked_params
from tasks.core.config.params import Params
from tasks.core.config.policy import ALL_LINEAR, PACKAGED
from tasks.core.policies.chat_settings import read_chat_settings
from tasks.core.policies.checkpoint_files import ADAPTER_CONFIG, holds_adapter
from tasks.core.policies.policy_weights import read_settings
from tasks.core.records.files import ArtifactError, read_json, replacing
from tasks.core.registry.model_registry import UnknownVersion
from tasks.core.registry.run_registry import opened

VERSIONS = Path(".loopline") / "scoring" / "versions"
_DIAL_S = 10.0
_COMMIT = re.compile(r"[0-9a-f]{40}")


class NoServer(RuntimeError):  # noqa: N818
    """Nobody answers at a server's address."""


class NoBase(WrongArgument):
    """A checkpoint says of no base model; the message says how to name one."""


@dataclass(frozen=True)
class Asked:
    """All that a command asks beside its models."""

    root: Path
    """The checkout."""
    world: str
    split: str
    counts: dict[str, int]
    """`rollouts_per_task` and `scenarios`, where they are named."""
    base: str | None
    """The base model of checkpoints, where it is named."""
    settings: Sequence[str]


@dataclass(frozen=True)
class ReadyModel:
    """A model that can be played."""

    asked: AskedModel
    params: Params
    checkpoint: Path | None
    """None: the base model is played as it is, or a server."""


def ready_model(model: AskedModel, asked: Asked) -> ReadyModel:
    """Return a model that can be played.

    Raises NoBase, UnknownModel, NoServer, ParamsError, ArtifactError, LineageError.
    """
    checkpoint = None
    if model.kind == "api":
        _require_server(model.at)
        policy: dict[str, Any] = {}
    elif model.kind == "model":
        policy = _base_knobs(model)
    else:
        checkpoint = _downloaded(model, asked.root) if model.kind == "version" else Path(model.name)
        policy = _base_knobs(base_of(checkpoint, asked.base)) | trained_part(checkpoint)
    params = asked_params(asked.root, model, policy, asked.world, asked.counts, asked.settings)
    return ReadyModel(model, params, checkpoint)


def base_of(checkpoint: Path, named: str | None) -> AskedModel:
    """Return the base model of a checkpoint: the one `named`, else the one that its run or its files tell.

    Raises NoBase and UnknownModel.
    """
    word = named or _of_run(checkpoint) or _of_files(checkpoint)
    if word is None:
        raise NoBase(f"{checkpoint}: names no base model; add --base MODEL")
    found = asked_models([word])[0]
    if found.kind != "model":
        raise NoBase(f"{word}: the base of a checkpoint is a model with its tokenizer, not {found.kind}")
    return found


def trained_part(checkpoint: Path) -> dict[str, Any]:
    """Return the knobs of `policy` that fit a checkpoint. Raises ArtifactError for an adapter that has none."""
    if not holds_adapter(checkpoint):
        return {"trained": "full"}
    path = checkpoint / ADAPTER_CONFIG
    rank, alpha, scaling, targets = read_settings(path)
    if alpha != int(alpha) or scaling != alpha / rank:
        raise ArtifactError(f"{path}: lora_alpha must be a whole number, and use_rslora false")
    if targets != ALL_LINEAR and isinstance(targets, str):
        raise ArtifactError(f"{path}: target_modules must be a list of names, not {targets!r}")
    return {"trained": "lora", "lora": {"rank": rank, "alpha": int(alpha), "targets": targets}}


def pinned_commit(name: str, revision: str) -> str:
    """Return the commit of a hub id at a branch, tag or commit ("": its main branch); offline, that of the local cache.

    Raises ArtifactError.
    """
    if _COMMIT.fullmatch(revision):
        return revision
    import httpx2
    from huggingface_hub import HfApi, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return str(HfApi().model_info(name, revision=revision or None, timeout=10).sha)
    except (HfHubHTTPError, httpx2.HTTPError, OSError) as error:
        cached = try_to_load_from_cache(name, "config.json", revision=revision or None)
        if isinstance(cached, str):
            return Path(cached).parent.name
        reason = str(error).strip().splitlines()[0]
        raise ArtifactError(f"{name}: neither a folder nor a model that the hub gives: {reason}") from None


def _of_run(checkpoint: Path) -> str | None:
    """Return the base policy of the run around a checkpoint data/iterations/KEY/policy."""
    folder = checkpoint.parents[2] / "policy" if len(checkpoint.parents) > 2 else checkpoint
    in_run = checkpoint.name == "policy" and checkpoint.parent.parent.name == "iterations" and folder.is_dir()
    return str(folder) if in_run else None


def _of_files(checkpoint: Path) -> str | None:
    """Return the base model that a registered version holds or names in its base.json, or PEFT in an adapter."""
    version, adapter = checkpoint / "base.json", checkpoint / ADAPTER_CONFIG
    if version.is_file():
        base = read_json(version)
        if base.get("inside"):
            return str(checkpoint / base["name"])
        return f"{base['name']}@{base['revision']}" if base.get("revision") else None
    settings = read_json(adapter) if adapter.is_file() else {}
    name, revision = settings.get("base_model_name_or_path"), settings.get("revision")
    return f"{name}@{revision}" if name and revision and not Path(name).is_dir() else name


def _base_knobs(base: AskedModel) -> dict[str, Any]:
    """Return the knobs of `policy` that name a base model, of the hub at a commit; a folder keeps its chat settings."""
    named: dict[str, Any] = {"source": base.name, "context_length": None, "warm_start": None}
    if base.name.startswith(PACKAGED):
        return named | {"revision": base.at or None}
    if not (folder := Path(base.name)).is_dir():
        return named | {"revision": pinned_commit(base.name, base.at)}
    chat = read_chat_settings(folder).model_dump(mode="json")
    return named | {"revision": None} | ({"chat": chat} if chat else {})


def _require_server(url: str) -> None:
    """Raise NoServer where nothing listens: asking again, as one does a server that is busy, would take minutes."""
    parts = urlsplit(url)
    try:
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        socket.create_connection((parts.hostname, port), _DIAL_S).close()
    except (OSError, ValueError) as error:
        raise NoServer(f"{url}: no server there: {error}") from None


def _downloaded(model: AskedModel, root: Path) -> Path:
    """Return the files of a registered version, which are kept: a killed score goes on with them.

    Raises WrongArgument for a version that does not exist, ArtifactError and LineageError.
    """
    with opened(root, model.name) as (registry, _):  # left before anything is played: it explains all as MLflow's
        try:
            version = registry.find(model.at)
        except UnknownVersion as error:
            raise WrongArgument(str(error)) from None
        folder = root / VERSIONS / f"{model.name}-{version.number}-{version.tag('adapter_digest')[:12]}"
        if not folder.exists():
            with registry.weights(version) as files, replacing(folder) as temporary:
                shutil.copytree(files, temporary)
    return folder
