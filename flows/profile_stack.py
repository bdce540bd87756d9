"""Profiles: overlays on the default parameters, stacked from left to right.

A base (profiles/*.yaml) says what is trained where: world, policy, engine, sizes. `extends: NAME` in it puts it on top
of another one. A method (profiles/methods/*.yaml) changes the knobs of the method alone, so it stacks on any base.
profiles/default.yaml, where the embedded default differs from the config classes, lies below them all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import combinations
from pathlib import Path
from typing import Any

from tasks.core.config.lineage import LineageConfig
from tasks.core.config.params import ParamsError, read_yaml
from tasks.core.records.documents import dotted

PROFILES = Path(__file__).parent / "profiles"
METHODS = PROFILES / "methods"
DEFAULT = "default"
METHOD_SECTIONS = ("advantages", "collection", "tasks", "update")
"""Sections that a method may change: loss and labels, and which rollouts of which tasks it learns from."""
_UNSET = object()


class UnknownProfile(ValueError):  # noqa: N818
    """No profile has this name; the message has the one that may have been meant."""


@dataclass(frozen=True)
class Profile:
    """One overlay, as its file has it."""

    name: str
    overlay: Mapping[str, Any]
    extends: str | None
    is_method: bool


def profile_names() -> list[str]:
    """Return all profiles: `default`, the other bases, the methods."""
    return [*_bases(), *method_names()]


def method_names() -> list[str]:
    """Return those profiles that change a method's knobs alone."""
    return sorted(path.stem for path in METHODS.glob("*.yaml"))


def stacked(names: Sequence[str]) -> dict[str, Any]:
    """Return the content of params.yaml for these profiles, each on top of those before it, without derived maps.

    MLflow's experiment is that of the base with the methods' names behind it. Raises UnknownProfile, and ParamsError
    for two bases that set a knob to different values.
    """
    profiles = _with_bases(names)
    _refuse_contradictions(profiles)
    content: dict[str, Any] = {}
    for profile in profiles:
        content = merged(content, profile.overlay)
    experiment = content.get("lineage", {}).get("experiment", LineageConfig().experiment)
    methods = [profile.name for profile in profiles if profile.is_method]
    named = {"profiles": list(names), "lineage": {"experiment": "-".join([experiment, *methods])}}
    return merged(content, named if methods else {"profiles": list(names)})


def merged(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with `overlay` on top: mappings are merged, everything else is replaced."""
    result = dict(base)
    for name, value in overlay.items():
        below = base.get(name)
        result[name] = merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return result


def read_mapping(path: Path) -> dict[str, Any]:
    """Return the content of a YAML file. Raises ParamsError unless it is a mapping."""
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise ParamsError(f"{path}: expected a mapping, found {type(content).__name__}")
    return content


def _bases() -> list[str]:
    return [DEFAULT, *sorted(path.stem for path in PROFILES.glob("*.yaml") if path.stem != DEFAULT)]


def _with_bases(names: Sequence[str]) -> list[Profile]:
    """Return the default, then each profile after the profile that it extends, none twice."""
    if DEFAULT in names[1:]:
        raise ParamsError(f"profiles {' '.join(names)}: {DEFAULT} lies below all others; name it first, or not at all")
    found: dict[str, Profile] = {}
    for name in (DEFAULT, *names):
        for profile in _chain(name):
            found.setdefault(profile.name, profile)
    return list(found.values())


def _chain(name: str) -> list[Profile]:
    profile = _read_profile(name)
    return [*(_chain(profile.extends) if profile.extends else []), profile]


def _read_profile(name: str) -> Profile:
    if name not in profile_names():
        meant = get_close_matches(name, profile_names(), n=1, cutoff=0.75)
        hint = f"did you mean {meant[0]}?" if meant else f"there are {', '.join(_bases())}, and methods"
        raise UnknownProfile(f"no profile {name!r}; {hint} (docs/methods.md)")
    is_method = name in method_names()
    content = read_mapping((METHODS if is_method else PROFILES) / f"{name}.yaml")
    return Profile(name, content, content.pop("extends", None), is_method)


def _refuse_contradictions(profiles: Sequence[Profile]) -> None:
    """Raise ParamsError where two bases, neither of which extends the other, set one knob differently.

    Names in MLflow are none of what a base is about: there the later one holds.
    """
    bases = [profile for profile in profiles if not profile.is_method and profile.name != DEFAULT]
    for first, second in combinations(bases, 2):
        if first.name in {profile.name for profile in _chain(second.name)}:
            continue
        ours, theirs = dotted(dict(first.overlay)), dotted(dict(second.overlay))
        for knob, value in theirs.items():
            if not knob.startswith("lineage.") and ours.get(knob, _UNSET) not in (_UNSET, value):
                raise ParamsError(
                    f"profiles {first.name} and {second.name} contradict each other: {knob} is {ours[knob]} in the "
                    f"one and {value} in the other; take one of them, and --set what you want of the other"
                )
