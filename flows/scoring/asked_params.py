"""The parameters that a model is scored with: those of this checkout's world, or of the world's profile."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from flows.params_file import assigned, checked
from flows.profile_stack import merged, profile_names, read_mapping, stacked
from flows.scoring.asked_models import AskedModel
from tasks.core.config.engine import ENGINES, EngineSection
from tasks.core.config.params import Params
from tasks.core.config.policy import PACKAGED
from tasks.core.config.world import WorldSection

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
    asked = {"request": {"base_url": model.at, "model": model.name}, "traffic": {"key_variable": _key_of(model.at)}}
    changes = {
        "world": {"name": world},
        "engine": {"chat_api": asked},
        "collection": {"limits": {"max_turns": turns}},
        "evaluation": {"scenarios": None},
    }
    return merged(content, changes)


def _key_of(url: str) -> str | None:
    """Return the variable with the key, for its owner's server alone: no other one is to see it unasked."""
    return _KEY if urlsplit(url).hostname == _KEY_HOST else None


def _with_whole_sources(content: dict[str, Any], root: Path) -> dict[str, Any]:
    """Name a base model in a folder by its whole path, since a score is played in a folder of its own."""
    policy = content.get("policy") or {}
    source = policy.get("source", Params().policy.source)
    pinned = source.startswith(PACKAGED) or policy.get("revision") is not None
    whole = source if pinned or not (root / source).is_dir() else str((root / source).resolve())
    return {**content, "policy": {**policy, "source": whole}}
