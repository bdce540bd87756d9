"""The names of all knobs, and the one that somebody may have meant."""

from collections.abc import Iterator
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel

from tasks.core.config.kind_section import KindSection
from tasks.core.config.kinds import UnknownKind


def knob_names(section: type[BaseModel], place: str = "") -> Iterator[str]:
    """Yield the dotted name of every knob and section below `section`, of all kinds that a section may be."""
    for name, field in section.model_fields.items():
        yield place + name
        for below in _sections(field.annotation):
            yield from knob_names(below, f"{place}{name}.")
            for kind, own in _kinds(below):
                yield from knob_names(own, f"{place}{name}.{kind}.")


def closest_knob(name: str, section: type[BaseModel]) -> str | None:
    """Return the knob of `section` whose dotted name is most like `name`, or whose last part is its last part."""
    known = list(dict.fromkeys(knob_names(section)))
    alike = get_close_matches(name, known, n=1, cutoff=0.8)
    last = name.rpartition(".")[2]
    same_part = sorted(
        (other for other in known if other.rpartition(".")[2] == last), key=lambda other: other.count(".")
    )
    return next(iter([*alike, *same_part]), None)


def _kinds(section: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the name and the class of each kind's own section where `section` is that of a kind."""
    if issubclass(section, KindSection):
        for name in section.kinds.names():
            with suppress(UnknownKind):  # of a broken package
                if own := section.kinds.find(name).settings:
                    yield name, own


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _sections(part)
