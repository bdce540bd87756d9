"""Write params.yaml from a profile: an overlay on the defaults, with the maps that DVC needs derived from `iterations`.

profiles/default.yaml is the embedded default, where it differs from the config classes (tasks/*/config.py); the other
profiles lie on top of it.

python -m flows.configure NAME [--set a.b=c ...]
python -m flows.configure --refresh [--set a.b=c ...]     (keep params.yaml, derive the maps anew)
"""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from flows.dag.local_change import show_change
from tasks.core.config.collection import CollectionConfig
from tasks.core.config.evaluation import EvaluationConfig
from tasks.core.config.params import (
    DERIVED_MAPS,
    Params,
    ParamsError,
    evaluated_keys,
    parse_params,
    previous_map,
    read_yaml,
)
from tasks.core.records.dotted import dotted
from tasks.core.records.files import replacing

PROFILES = Path(__file__).parent / "profiles"
DEFAULT = "default"


class UnknownProfile(ValueError):  # noqa: N818
    """No profile has this name; the message lists those that exist."""


def main(arguments: list[str] | None = None) -> int:
    """Parse, write params.yaml, print what changed. Exit code 2: no such profile; 1: the result breaks a rule."""
    parser = argparse.ArgumentParser(prog="python -m flows.configure", description="Write params.yaml from a profile.")
    parser.add_argument("name", nargs="?", help=f"one of: {', '.join(profile_names())}")
    parser.add_argument("--refresh", action="store_true", help="start from the present params.yaml instead")
    parser.add_argument(
        "--set", action="append", default=[], metavar="a.b=VALUE", help="change one knob; VALUE is YAML"
    )
    parsed = parser.parse_args(arguments)
    path = Path.cwd() / "params.yaml"
    if (parsed.name is None) != parsed.refresh:
        parser.error("give a profile's name, or --refresh")
    try:
        content = _read(path) if parsed.refresh else profile_content(parsed.name)
        for assignment in parsed.set:
            content = merged(content, parse_assignment(assignment))
        changes = write_params(path, content)
        if show_change(path):
            changes.append("git sees params.yaml again, in which a scheduled run had raised `iterations`")
    except (UnknownProfile, ParamsError) as error:
        print(f"flows.configure: {error}", file=sys.stderr)
        return 2 if isinstance(error, UnknownProfile) else 1
    print("\n".join(changes) or "params.yaml is as it was")
    return 0


def profile_names() -> list[str]:
    """All profiles, `default` first."""
    return [DEFAULT, *sorted(path.stem for path in PROFILES.glob("*.yaml") if path.stem != DEFAULT)]


def profile_content(name: str) -> dict[str, Any]:
    """The profile's overlay upon that of the default. Raises UnknownProfile."""
    if name not in profile_names():
        raise UnknownProfile(f"unknown profile {name!r}; the profiles are: {', '.join(profile_names())}")
    return merged(_read(PROFILES / f"{DEFAULT}.yaml"), _read(PROFILES / f"{name}.yaml"))


def params_of(name: str, assignments: Iterable[str] = ()) -> Params:
    """The profile's parameters, with `--set` assignments on top. Raises UnknownProfile or ParamsError."""
    content = profile_content(name)
    for assignment in assignments:
        content = merged(content, parse_assignment(assignment))
    return parse_params(_with_maps(content), name)


def parse_assignment(text: str) -> dict[str, Any]:
    """{"update": {"epochs": 3}} of "update.epochs=3". Raises ParamsError."""
    name, equals, value = text.partition("=")
    if not equals or not all(name.split(".")):
        raise ParamsError(f"--set {text}: expected NAME=VALUE, such as update.epochs=3")
    try:
        overlay: Any = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ParamsError(f"--set {text}: the value is not valid YAML: {error}") from None
    for part in reversed(name.split(".")):
        overlay = {part: overlay}
    return dict(overlay)


def merged(base: dict[str, Any], overlay: dict[str, Any]) -> dict[str, Any]:
    """`base` with `overlay` on top; mappings are merged, everything else is replaced."""
    result = dict(base)
    for name, value in overlay.items():
        below = base.get(name)
        result[name] = merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return result


def write_params(path: Path, content: dict[str, Any]) -> list[str]:
    """Check and write params.yaml in full, defaults included. Returns one line per value that changed.

    Raises ParamsError before anything is written.
    """
    params = parse_params(_with_maps(content), str(path))
    complete = _maps_last(params.model_dump(mode="json"))
    before = dotted(_read(path)) if path.exists() else {}
    with replacing(path) as temporary:
        temporary.write_text(yaml.safe_dump(complete, sort_keys=False), encoding="utf-8")
    return _changes(before, dotted(complete))


def _maps_last(content: dict[str, Any]) -> dict[str, Any]:
    """The knobs first: the maps have lines for every iteration. In plain YAML, which `dvc exp run` writes alike."""
    return {name: content[name] for name in sorted(content, key=lambda name: name in DERIVED_MAPS)}


def _with_maps(content: dict[str, Any]) -> dict[str, Any]:
    """`content` with the derived maps; wrong numbers are left for validation to name."""
    iterations = content.get("iterations", Params.model_fields["iterations"].default)
    every = _inner(content, "evaluation", "every", EvaluationConfig().every)
    staleness = _inner(content, "collection", "staleness", CollectionConfig().staleness)
    if not all(isinstance(number, int) for number in (iterations, every, staleness)):
        return {**content, "previous": {}, "evaluated": []}
    if not (0 <= iterations < 1000 and every > 0 and staleness >= 0):
        return {**content, "previous": {}, "evaluated": []}
    previous = {key: before.model_dump() for key, before in previous_map(iterations, staleness).items()}
    return {**content, "previous": previous, "evaluated": evaluated_keys(iterations, every)}


def _inner(content: dict[str, Any], section: str, name: str, default: int) -> Any:
    """A number of a section; None where the section is no mapping."""
    found = content.get(section, {})
    return found.get(name, default) if isinstance(found, dict) else None


def _changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [
        f"{name}: {before.get(name, '(unset)')} -> {after.get(name, '(unset)')}"
        for name in [*after, *(name for name in before if name not in after)]
        if before.get(name, _UNSET) != after.get(name, _UNSET) and name.partition(".")[0] not in DERIVED_MAPS
    ]


_UNSET = object()


def _read(path: Path) -> dict[str, Any]:
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise ParamsError(f"{path}: expected a mapping, found {type(content).__name__}")
    return content


if __name__ == "__main__":
    sys.exit(main())
