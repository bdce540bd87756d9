"""Marks of what differs between equal runs, on a field of a document or a column of a table.

    update_s: Annotated[Positive, CLOCK]
    pa.field("answered_at", pa.float64(), metadata={CLOCK: ""})

A mark decides what two runs are compared by; see `content`.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pydantic import BaseModel

CLOCK = "clock"
"""Marks a duration, a moment, a rate, or another figure of how the machine did its work."""
ORIGIN = "origin"
"""Marks what says with which code, knobs and files something was made, rather than what came out."""
LEFT_OUT = (CLOCK, ORIGIN)


def has_clock(kind: type[BaseModel]) -> bool:
    """Return whether documents of this kind differ between equal runs."""
    return any(CLOCK in field.metadata for field in kind.model_fields.values())


def unmarked_fields(kind: type[BaseModel], content: dict[str, Any]) -> dict[str, Any]:
    """Return the content without marked fields of the document itself; documents inside it have no marks."""
    if "root" in kind.model_fields:
        return {} if _is_marked(kind, "root") else content
    return {name: value for name, value in content.items() if not _is_marked(kind, name)}


def unmarked_columns(schema: pa.Schema) -> Iterator[str]:
    """Yield the columns of a table's file that have no mark; a parquet file keeps the marks of its columns."""
    for field in schema:
        if not any(mark.encode() in (field.metadata or {}) for mark in LEFT_OUT):
            yield field.name


def _is_marked(kind: type[BaseModel], name: str) -> bool:
    return name in kind.model_fields and any(mark in kind.model_fields[name].metadata for mark in LEFT_OUT)
