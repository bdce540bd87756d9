"""The base of every section of params.yaml: frozen, and strict about names and ranges."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import to_jsonable_python

UNVERSIONED = "unversioned"
"""Marks a knob whose change makes no artifact stale: `timeout_s: Annotated[float, UNVERSIONED] = 30`. For
settings that cannot change results (addresses, time-outs), or that DVC tracks by other means."""


class Section(BaseModel):
    """A frozen section; an unknown (misspelt) key or a value out of range is an error that names the knob."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    renamed: ClassVar[Mapping[str, str]] = {}
    """Earlier names of knobs and today's, {"warmup_updates": "warmup_steps"}; an earlier one is an error."""

    constants: ClassVar[Mapping[str, str]] = {}
    """Knobs of earlier versions that are constants now, with their values, {"longest_wait_s": "120"}; an error too."""

    @model_validator(mode="before")
    @classmethod
    def _has_no_earlier_names(cls, content: Any) -> Any:
        given = content if isinstance(content, dict) else {}
        faults = [f"`{name}` is now called `{today}`" for name, today in cls.renamed.items() if name in given]
        faults += [f"`{name}` is always {value}; delete it" for name, value in cls.constants.items() if name in given]
        if faults:
            raise ValueError("; ".join(faults))
        return content

    def knobs(self, prefix: str = "", *, unversioned: bool = False) -> dict[str, Any]:
        """Return {dotted name: JSON value} of all knobs below `prefix`, with `unversioned` those marked so too."""
        values: dict[str, Any] = {}
        for name, field in type(self).model_fields.items():
            if unversioned or UNVERSIONED not in field.metadata:
                knob, value = f"{prefix}{self.knob_of(name)}", getattr(self, name)
                if isinstance(value, Section):
                    values |= value.knobs(f"{knob}.", unversioned=unversioned)
                else:
                    values[knob] = to_jsonable_python(value)
        return values

    @classmethod
    def knob_of(cls, name: str) -> str:
        """Return the knob of the field `name`, relative to its section."""
        return name
