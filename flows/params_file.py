"""Write params.yaml from profiles (flows/profile_stack.py), with the maps that DVC needs derived from `iterations`."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from flows.errors import WrongArgument
from flows.profile_stack import merged, read_mapping, stacked
from tasks.core.config.descriptions import knob_comments
from tasks.core.config.engine import EngineSection
from tasks.core.config.kind_section import KindSection
from tasks.core.config.params import Params, ParamsError, params_of_knobs
from tasks.core.config.world import WorldSection
from tasks.core.config.yaml_text import YamlFault, parse_yaml, yaml_nodes, yaml_text
from tasks.core.records.documents import dotted
from tasks.core.records.files import replacing

_COLUMN = 42
"""Column at which comments begin, if their values leave it free."""


class WrongSetting(ParamsError, WrongArgument):  # noqa: N818
    """An argument, not a file, is at fault: `--set`, a study's name, a method that it does not have."""


def params_of(profiles: str, assignments: Iterable[str] = ()) -> Params:
    """Return the parameters of `profiles` (as on the command line: "paper rloo"), with `--set` assignments on top.

    Raises UnknownProfile or ParamsError.
    """
    return checked(assigned(stacked(profiles.split()), assignments), profiles)


def world_section(name: str, assignments: Iterable[str]) -> WorldSection:
    """Return the section of the world `name` for who plays it as long as he likes. Raises ParamsError."""
    any_length = f"collection.limits.max_turns={10**9}"
    return params_of("default", [*assignments, f"world.name={name}", any_length]).world


def checked(content: dict[str, Any], source: str) -> Params:
    """Return the parameters that `content` means, with what is derived from them. Raises ParamsError."""
    return params_of_knobs(content, source)


def params_in(path: Path, assignments: Iterable[str] = ()) -> Params:
    """Return the parameters of the file at `path`, with `--set` assignments on top. Raises ParamsError."""
    return checked(assigned(read_mapping(path), assignments), str(path))


def assigned(content: dict[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """Return `content` with `--set` assignments on top. Raises ParamsError."""
    assignments = list(assignments)
    for assignment in assignments:
        content = merged(content, parse_assignment(assignment))
    _require_in_use(assignments, content)
    return content


def _require_in_use(assignments: Iterable[str], content: dict[str, Any]) -> None:
    """Raise WrongSetting for an assignment to a world or an engine that these parameters do not use."""
    for name in (assignment.partition("=")[0] for assignment in assignments):
        section, _, below = name.partition(".")
        kind = below.partition(".")[0]
        if section in _NAMED and kind in _NAMED[section].names():
            used = _NAMED[section].name_of(content.get(section) or {})
            if used != kind:
                raise WrongSetting(f"--set {name}: {section}.name is {used}, which has no section {kind}")


def parse_assignment(text: str) -> dict[str, Any]:
    """Return {"update": {"epochs": 3}} for "update.epochs=3". Raises WrongSetting."""
    name, equals, value = text.partition("=")
    if not equals or not all(name.split(".")):
        raise WrongSetting(f"--set {text}: expected NAME=VALUE, such as update.epochs=3")
    try:
        overlay: Any = parse_yaml(value)
    except YamlFault as error:
        raise WrongSetting(f"--set {text}: the value is not valid YAML: {error}") from None
    for part in reversed(name.split(".")):
        overlay = {part: overlay}
    return dict(overlay)


def write_params(path: Path, content: dict[str, Any]) -> list[str]:
    """Check and write params.yaml in full, defaults included. Returns one line per value that changed.

    A file that would stay as it is is not written. Another line says where the file that was there could not be read,
    or has changed in its text alone. Raises ParamsError before anything is written.
    """
    params = checked(content, str(path))
    text = text_of(params)
    if path.exists() and path.read_bytes() == text.encode():
        return []
    before, unread = _present(path)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return [*unread, *_changes(before, dotted(params.model_dump(mode="json")))] or [_TEXT_ALONE]


def _present(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the values in the file, and a line that says so where a damaged file (by a merge, say) has none."""
    try:
        return (dotted(read_mapping(path)) if path.exists() else {}), []
    except ParamsError as error:
        return {}, [f"what was there could not be read, so every value counts as new: {error}"]


def params_text(content: dict[str, Any]) -> str:
    """Return the text that `write_params` writes. Raises ParamsError."""
    return text_of(checked(content, "params.yaml"))


def _changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [
        f"{name}: {before.get(name, '(unset)')} -> {after.get(name, '(unset)')}"
        for name in [*after, *(name for name in before if name not in after)]
        if before.get(name, _UNSET) != after.get(name, _UNSET) and not name.startswith("dag.")
    ]


_UNSET = object()
_NAMED: dict[str, type[KindSection]] = {"world": WorldSection, "engine": EngineSection}
_TEXT_ALONE = "no value has changed; the text of params.yaml was written anew"


def text_of(params: Params) -> str:
    """Return the whole of params.yaml."""
    content = params.model_dump(mode="json")
    dag = {"dag": content.pop("dag")}
    return _commented(yaml_text(content), knob_comments(params)) + yaml_text(dag, flat=True)


def _commented(text: str, comments: Mapping[str, str]) -> str:
    """Return the YAML `text` with the comments of its keys."""
    lines = text.splitlines()
    whole = yaml_nodes(text)
    for line, name in _keys(whole, ""):
        if comment := comments.get(name):
            lines[line] = f"{lines[line]:<{_COLUMN}}  # {comment}"
    return "\n".join(lines) + "\n"


def _keys(mapping: yaml.Node, prefix: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the dotted name of every key after whose line nothing of its value goes on, or all of it."""
    for key, value in mapping.value:
        line, name = key.start_mark.line, prefix + key.value
        block = isinstance(value, yaml.MappingNode) and not value.flow_style
        if block or value.end_mark.line == line:
            yield line, name
        if block:
            yield from _keys(value, f"{name}.")
