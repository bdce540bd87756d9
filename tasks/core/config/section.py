"""The base of every section of params.yaml: frozen, and strict about names and ranges."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator


class Section(BaseModel):
    """A frozen section; an unknown (misspelt) key or a value out of range is an error that names its place."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    renamed: ClassVar[Mapping[str, str]] = {}
    """Earlier names of knobs and today's, {"warmup_updates": "warmup_steps"}; an earlier one is an error."""

    @model_validator(mode="before")
    @classmethod
    def _has_no_earlier_names(cls, content: Any) -> Any:
        found = [name for name in cls.renamed if isinstance(content, dict) and name in content]
        if found:
            raise ValueError("; ".join(f"`{name}` is now called `{cls.renamed[name]}`" for name in found))
        return content
