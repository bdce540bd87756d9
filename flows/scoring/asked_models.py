"""The models that a command line names, made ready: which base model, which checkpoint, which parameters.

The parameters are those of this checkout's world, or of the world's profile.
"""

import re
import shutil
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from flows.errors import WrongArgument
from flows.params_file import assigned, checked
from flows.profile_stack import merged, profile_names, read_mapping, stacked
from tasks.core.config.engine import ENGINES, EngineSection
from tasks.core.config.params import Params
from tasks.core.config.policy import ALL_LINEAR, PACKAGED
from tasks.core.config.world import WorldSection
from tasks.core.policies.chat_settings import read_chat_settings
from tasks.core.policies.checkpoint_files import ADAPTER_CONFIG, FULL_CONFIG, holds_adapter
from tasks.core.policies.policy_weights import read_settings
from tasks.core.records.comparison import ModelKind
from tasks.core.records.files import ArtifactError, read_json, replacing
from tasks.core.registry.model_registry import UnknownVersion
from tasks.core.registry.run_registry import opened

REGISTERED = "models:/"
_HUB_ID = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(@(?P<revision>[\w.-]+))?")
_VERSION = re.compile(r"models:/(?P<name>[^/@]+)(/(?P<number>\d+)|@(?P<alias>[\w-]+))")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json")
KNOWN = "a folder, a hub id, an adapter's folder, models:/NAME/3, models:/NAME@champion, or a URL and a model's name"


class UnknownModel(WrongArgument):
    """No model is meant by what was given; the message says what could be."""


@dataclass(frozen=True)
class AskedModel:
    """One model, as it was named."""

    kind: ModelKind
    text: str
    """All of it, for records."""
    name: str
    """The folder, the hub id, the registered model's name, or what the server calls it."""
    at: str = ""
    """The server's URL, the version's number or alias, or the hub's revision."""

    @property
    def short(self) -> str:
        """A name for tables and folders."""
        parts = [part for part in re.split(r"[^\w.=-]+", self.name.removeprefix(PACKAGED)) if part]
        if self.kind in ("adapter", "weights") and parts[-1] == "policy" and len(parts) > 1:
            parts.pop()  # a run's checkpoint: data/iterations/i016/policy
        return f"{parts[-1]}-{self.at}" if self.kind == "version" else parts[-1]


def asked_models(words: Sequence[str]) -> list[AskedModel]:
    """Return the models that the words name; a URL takes the word after it too. Raises UnknownModel."""
    found = list(_asked(iter(words)))
    if twice := [model.text for model in found if found.count(model) > 1]:
        raise UnknownModel(f"{twice[0]}: named twice")
    return found


def is_url(word: str) -> bool:
    """Return whether a word is a server's address."""
    return word.startswith(("http://", "https://"))


def _asked(words: Iterator[str]) -> Iterator[AskedModel]:
    for word in words:
        if is_url(word):
            name = next(words, "")
            if not name or is_url(name) or not urlsplit(word).hostname:
                raise UnknownModel(f"{word}: after a server's URL comes the model's name, as in {word} my-model")
            yield AskedModel("api", f"{word} {name}", name, word.rstrip("/"))
        elif word.startswith(REGISTERED):
            yield _version(word)
        else:
            yield _files(word)


def _version(word: str) -> AskedModel:
    found = _VERSION.fullmatch(word)
    if found is None:
        raise UnknownModel(f"{word}: a registered version is models:/NAME/3 or models:/NAME@champion")
    return AskedModel("version", word, found["name"], found["number"] or found["alias"])


def _files(word: str) -> AskedModel:
    folder, hub = Path(word), _HUB_ID.fullmatch(word)
    if word.startswith(PACKAGED):
        return AskedModel("model", word, word)
    if folder.is_dir():
        return AskedModel(_kind_of(folder), word, word)
    if hub is not None and not word.startswith(("data/", "./", "../")):
        return AskedModel("model", word, hub["name"], hub["revision"] or "")
    raise UnknownModel(f"{word}: no such model; name {KNOWN}")


def _kind_of(folder: Path) -> ModelKind:
    """Return what lies in a folder. Raises UnknownModel for one that holds no model."""
    if holds_adapter(folder):
        return "adapter"
    if not (folder / FULL_CONFIG).exists():
        raise UnknownModel(f"{folder}: holds no model: neither adapter_config.json nor config.json")
    return "model" if any((folder / name).exists() for name in _TOKENIZERS) else "weights"


API_PROFILE = "openai"
_KEY, _KEY_HOST = "OPENAI_API_KEY", "api.openai.com"
_READ = ("profiles", "seed", "world", "policy", "tasks", "engine", "machines", "evaluation", "scoring", "lineage")
_READ_OF_COLLECTION = ("limits", "max_concurrent_episodes", "shards", "world_retries", "judge_unfinished")
"""Sections, and knobs of `collection`, that playing a split reads."""
_OF_A_MODEL = ("lora", "trained", "warm_start", "source", "revision", "context_length", "chat")
"""Knobs of `policy` that say which model is meant; the others say how one is computed."""


def world_of(root: Path, named: str | None) -> str:
    """Return the world `named`, or else that of params.yaml. Raises ParamsError."""
    return named or str(WorldSection.name_of(read_mapping(root / "params.yaml").get("world") or {}))


def asked_params(
    root: Path, model: AskedModel, policy: dict[str, Any], world: str, counts: dict[str, int], settings: Sequence[str]
) -> Params:
    """Return the parameters for one model; `policy` holds the knobs that say which it is.

    A server is asked as the profile `openai` says. Everything else is played as params.yaml says, if that is of this
    world, else as the world's profile does, else as the default. `settings` come on top. Raises ParamsError and
    UnknownProfile.
    """
    content = _for_api(model, world) if model.kind == "api" else _for_policy(root, policy, world)
    content = merged(
        content, {"iterations": 0, "evaluation": counts, "scoring": {"at_training_budget": False, **counts}}
    )
    return checked(_with_whole_sources(assigned(content, settings), root), model.text)


def _for_policy(root: Path, policy: dict[str, Any], world: str) -> dict[str, Any]:
    content = _of_world(root, world)
    computed = {k: v for k, v in (content.get("policy") or {}).items() if k not in _OF_A_MODEL}
    return {**content, "policy": {**computed, **policy}}


def _of_world(root: Path, world: str) -> dict[str, Any]:
    path = root / "params.yaml"
    present = read_mapping(path) if path.exists() else {}
    if present and WorldSection.name_of(present.get("world") or {}) == world:
        return _only_scoring(present)
    named = [world] if world in profile_names() else []
    content = _only_scoring(stacked(named or ["default"]))
    return merged(content, {"world": {"name": world}})


def _only_scoring(content: dict[str, Any]) -> dict[str, Any]:
    """Leave out what only training reads, whose rules hold for a method; and an engine that recites, not samples."""
    sections = {name: value for name, value in content.items() if name in _READ}
    collection = {
        name: value for name, value in (content.get("collection") or {}).items() if name in _READ_OF_COLLECTION
    }
    if not ENGINES.find(EngineSection.name_of(content.get("engine") or {})).samples_policy:
        sections.pop("engine")
    return sections | {"collection": collection}


def _for_api(model: AskedModel, world: str) -> dict[str, Any]:
    """Return the profile `openai` in a world, whole, with no turn limit below the world's own."""
    content = stacked([API_PROFILE])
    least = WorldSection.of(world).settings.most_turns if WorldSection.is_kind(world) else 0
    turns = max(content["collection"]["limits"]["max_turns"], least)
    key = _KEY if urlsplit(model.at).hostname == _KEY_HOST else None  # its owner's server alone is to see it unasked
    asked = {"request": {"base_url": model.at, "model": model.name}, "traffic": {"key_variable": key}}
    changes = {
        "world": {"name": world},
        "engine": {"chat_api": asked},
        "collection": {"limits": {"max_turns": turns}},
        "evaluation": {"scenarios": None},
    }
    return merged(content, changes)


def _with_whole_sources(content: dict[str, Any], root: Path) -> dict[str, Any]:
    """Name a base model in a folder by its whole path, since a score is played in a folder of its own."""
    policy = content.get("policy") or {}
    source = policy.get("source", Params().policy.source)
    pinned = source.startswith(PACKAGED) or policy.get("revision") is not None
    whole = source if pinned or not (root / source).is_dir() else str((root / source).resolve())
    return {**content, "policy": {**policy, "source": whole}}


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
