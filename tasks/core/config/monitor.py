"""The `monitor` section of params.yaml: what is watched for a collapse of training, and what is done about one."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from tasks.core.config.section import UNVERSIONED, Section


class InformationConfig(Section):
    """The sample on which an update measures how much responses say of their prompts (RAGEN-2).

    It is drawn from the batch that trains, which is what an update reads: rollouts that the filter dropped are not in
    it, and with few groups left (StarPO-S keeps a quarter) fewer prompts than asked for.
    """

    constants: ClassVar[Mapping[str, str]] = {"responses": "16"}

    prompts: int = Field(8, ge=0)
    """Prompts under which each response is read. At most, all different; 0: nothing is measured. Each of 16 first turns
    is passed once under each; in the default profile 4% of an update's CPU time."""

    @model_validator(mode="after")
    def _one_prompt_tells_nothing(self) -> "InformationConfig":
        if self.prompts == 1:
            raise ValueError(
                "prompts: with 1 there is no other prompt to compare with; set it to 0 (measure nothing) or at least 2"
            )
        return self


class MonitorConfig(Section):
    """The collapse monitor."""

    information: InformationConfig = InformationConfig()
    """Sample that measures how much responses say of their prompts (RAGEN-2)."""
    action: Annotated[Literal["none", "stop"], UNVERSIONED] = "none"
    """Action after a warning. stop: no further iteration is played; those that were can be scored with `iterations` set
    to their number."""
