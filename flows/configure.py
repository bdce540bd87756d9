"""Write params.yaml from profiles (flows/profile_stack.py), with the maps that DVC needs derived from `iterations`.

python -m flows.configure NAME [NAME ...] [--set a.b=c ...]     (several: stacked from left to right)
python -m flows.configure --refresh [--set a.b=c ...]           (keep params.yaml, derive the maps anew)
"""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flows.errors import is_expected
from flows.profile_stack import UnknownProfile, merged, profile_names, read_mapping, stacked
from tasks.core.config.collection import CollectionConfig
from tasks.core.config.evaluation import EvaluationConfig
from tasks.core.config.monitor import MonitorConfig
from tasks.core.config.params import (
    DERIVED_MAPS,
    MOST_ITERATIONS,
    Params,
    ParamsError,
    evaluated_keys,
    monitoring_maps,
    parse_params,
    previous_map,
    sampling_maps,
)
from tasks.core.config.yaml_text import YamlFault, parse_yaml, yaml_text
from tasks.core.processes.caller_variables import settle_variables
from tasks.core.records.dotted import dotted
from tasks.core.records.files import replacing


def main(arguments: list[str] | None = None) -> int:
    """Parse, write params.yaml, print what changed. Exit code 2: no such profile; 1: the result breaks a rule."""
    parser = argparse.ArgumentParser(prog="python -m flows.configure", description="Write params.yaml from profiles.")
    parser.add_argument(
        "names", nargs="*", metavar="name", help=f"profiles, the later on top: {', '.join(profile_names())}"
    )
    parser.add_argument("--refresh", action="store_true", help="start from the present params.yaml instead")
    parser.add_argument(
        "--set", action="append", default=[], metavar="a.b=VALUE", help="change one knob; VALUE is YAML"
    )
    parsed = parser.parse_args(arguments)
    settle_variables()
    path = Path.cwd() / "params.yaml"
    if bool(parsed.names) == parsed.refresh:
        parser.error("give a profile's name, or --refresh")
    try:
        content = read_mapping(path) if parsed.refresh else stacked(parsed.names)
        changes = write_params(path, assigned(content, parsed.set))
    except Exception as error:
        if not is_expected(error):
            raise
        print(f"flows.configure: {error}", file=sys.stderr)
        return 2 if isinstance(error, UnknownProfile) else 1
    print("\n".join(changes) or "params.yaml is as it was")
    return 0


def params_of(profiles: str, assignments: Iterable[str] = ()) -> Params:
    """Parameters of `profiles` (names as on the command line: "paper rloo"), with `--set` assignments on top.

    Raises UnknownProfile or ParamsError.
    """
    return parse_params(_with_maps(assigned(stacked(profiles.split()), assignments)), profiles)


def params_in(path: Path, assignments: Iterable[str] = ()) -> Params:
    """Parameters of the file at `path`, with `--set` assignments on top. Raises ParamsError."""
    return parse_params(_with_maps(assigned(read_mapping(path), assignments)), str(path))


def assigned(content: dict[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """`content` with `--set` assignments on top. Raises ParamsError."""
    for assignment in assignments:
        content = merged(content, parse_assignment(assignment))
    return content


def parse_assignment(text: str) -> dict[str, Any]:
    """{"update": {"epochs": 3}} of "update.epochs=3". Raises ParamsError."""
    name, equals, value = text.partition("=")
    if not equals or not all(name.split(".")):
        raise ParamsError(f"--set {text}: expected NAME=VALUE, such as update.epochs=3")
    try:
        overlay: Any = parse_yaml(value)
    except YamlFault as error:
        raise ParamsError(f"--set {text}: the value is not valid YAML: {error}") from None
    for part in reversed(name.split(".")):
        overlay = {part: overlay}
    return dict(overlay)


def write_params(path: Path, content: dict[str, Any]) -> list[str]:
    """Check and write params.yaml in full, defaults included. Returns one line per value that changed.

    A file that would stay as it is is not written. Another line says where the file that was there could not be read,
    or has changed in its text alone. Raises ParamsError before anything is written.
    """
    complete = _complete(content, str(path))
    text = _text(complete)
    if path.exists() and path.read_bytes() == text.encode():
        return []
    before, unread = _present(path)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return [*unread, *_changes(before, dotted(complete))] or [_TEXT_ALONE]


def _present(path: Path) -> tuple[dict[str, Any], list[str]]:
    """The values in the file, none where there is no file or it is damaged (by a merge, say), which a line tells."""
    try:
        return (dotted(read_mapping(path)) if path.exists() else {}), []
    except ParamsError as error:
        return {}, [f"what was there could not be read, so every value counts as new: {error}"]


def params_text(content: dict[str, Any]) -> str:
    """The text that `write_params` writes. Raises ParamsError."""
    return _text(_complete(content, "params.yaml"))


def _complete(content: dict[str, Any], place: str) -> dict[str, Any]:
    return _maps_last(parse_params(_with_maps(content), place).model_dump(mode="json"))


def _text(complete: dict[str, Any]) -> str:
    return yaml_text(complete)


def _maps_last(content: dict[str, Any]) -> dict[str, Any]:
    """The knobs first: the maps have lines for every iteration. In plain YAML, which `dvc exp run` writes alike."""
    return {name: content[name] for name in sorted(content, key=lambda name: name in DERIVED_MAPS)}


def _with_maps(content: dict[str, Any]) -> dict[str, Any]:
    """`content` with the derived maps; wrong numbers are left for validation to name.

    `sources` is left out: `Params` derives it from sections that it has found valid.
    """
    content = {name: value for name, value in content.items() if name != "sources"}
    iterations = content.get("iterations", Params.model_fields["iterations"].default)
    every = _inner(content, "evaluation", "every", EvaluationConfig().every)
    staleness = _inner(content, "collection", "staleness", CollectionConfig().staleness)
    collecting = _inner(content, "collection", "every", CollectionConfig().every)
    if not all(isinstance(number, int) for number in (iterations, every, staleness, collecting)):
        return {**content, **_NO_MAPS}
    if not (0 <= iterations <= MOST_ITERATIONS and every > 0 and staleness >= 0 and collecting >= 0):
        return {**content, **_NO_MAPS}
    previous = previous_map(iterations, staleness, collecting)
    return {
        **content,
        "previous": {key: before.model_dump() for key, before in previous.items()},
        **sampling_maps(previous, searching=_inner(content, "collection", "tree", None) is not None),
        **monitoring_maps(previous, _inner(content, "monitor", "action", MonitorConfig().action)),
        "evaluated": evaluated_keys(iterations, every),
    }


def _inner(content: dict[str, Any], section: str, name: str, default: int | str | None) -> Any:
    """A value of a section; None where the section is no mapping."""
    found = content.get(section, {})
    return found.get(name, default) if isinstance(found, dict) else None


def _changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [
        f"{name}: {before.get(name, '(unset)')} -> {after.get(name, '(unset)')}"
        for name in [*after, *(name for name in before if name not in after)]
        if before.get(name, _UNSET) != after.get(name, _UNSET) and name.partition(".")[0] not in DERIVED_MAPS
    ]


_UNSET = object()
_TEXT_ALONE = "no value has changed; the text of params.yaml was written anew, without comments"
_NO_MAPS: dict[str, Any] = {"previous": {}, "collected": {}, "searched": {}, "evaluated": []}


if __name__ == "__main__":
    sys.exit(main())
