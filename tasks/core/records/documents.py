"""The JSON artifacts: one typed model for each, validated on writing and on reading, and as flat ones by dotted name.

All shares are in [0, 1]; all TGC and SGC figures and their standard errors are in percent. An undefined figure (a
standard error from one scenario, the KL of an update that trained on nothing) is null, never NaN.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from tasks.core.config.broken_rules import broken_rules
from tasks.core.records.files import SPOILT, UNWRITTEN, ArtifactError, read_json, write_json

Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Percent = Annotated[float, Field(ge=0, le=100)]
Positive = Annotated[float, Field(ge=0)]
IterationKey = Annotated[str, Field(pattern=r"^i\d{3}$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
T = TypeVar("T")
OnlyWhereGiven = Annotated[T | None, Field(exclude_if=lambda value: value is None)]
"""A field that is left out of the file when it is None."""


class Document(BaseModel):
    """A JSON artifact. Strict about names and types: a misspelt or missing field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


D = TypeVar("D", bound=BaseModel)


def write_document(path: Path, document: BaseModel) -> None:
    """Write a document atomically as sorted, indented JSON. Raises ArtifactError naming file and field."""
    content = document.model_dump(mode="json")
    _validated(path, type(document), content)
    write_json(path, content)


def read_document(path: Path, kind: type[D], *, missing: str = UNWRITTEN, damaged: str = SPOILT) -> D:
    """Read and validate a document.

    Raises ArtifactError naming file, field and rule, or saying what to do if the file is missing or damaged.
    """
    return _validated(path, kind, read_json(path, missing=missing, damaged=damaged))


def _validated(path: Path, kind: type[D], content: dict[str, JsonValue]) -> D:
    try:
        return kind.model_validate_json(json.dumps(content))
    except ValidationError as error:
        raise ArtifactError("\n".join(f"{path}: {rule}" for rule in broken_rules(error, "(document)"))) from None


def dotted(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return every value in `content` that is not a mapping, by dotted name."""
    flat: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, Mapping):
            flat.update(dotted(value, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def dotted_text(content: Mapping[str, Any]) -> dict[str, str]:
    """Return every value in `content` by dotted name, as text; values that are not text as JSON."""
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in dotted(content).items()}


def dotted_numbers(content: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers in `content` by dotted name; leaves out booleans and everything else."""
    return {
        name: float(value)
        for name, value in dotted(content).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
