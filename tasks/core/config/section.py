"""The base of every section of params.yaml: frozen, and strict about names and ranges."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A frozen section; an unknown (misspelt) key or a value out of range is an error that names its place."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
