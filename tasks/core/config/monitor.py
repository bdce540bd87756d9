"""The `monitor` section of params.yaml: what is watched for a collapse of training, and what is done about one."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from tasks.core.config.section import Section

LOWERED = 0.3
"""Factor of the learning rate under `lower_learning_rate`, for each iteration with a new warning."""
TIGHTENED = 0.5
"""Share of the groups that train under `tighten_filter`. RAGEN: with the half of them that varies most, FrozenLake did
not collapse."""
MonitorAction = Literal["none", "stop", "lower_learning_rate", "tighten_filter", "discard_update"]


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

    constants: ClassVar[Mapping[str, str]] = {"learning_rate_factor": "0.3", "variance_share": "0.5"}

    information: InformationConfig = InformationConfig()
    """Sample that measures how much responses say of their prompts (RAGEN-2)."""
    action: MonitorAction = "none"
    """Action after a warning. stop: no further iteration is played; those that were can be scored with `iterations` set
    to their number. lower_learning_rate: by 0.3, once more for every iteration with a new warning.
    tighten_filter: only half of the groups train from then on, those that vary most. discard_update: an update whose
    own figures (gradient norm, and KL before its last step, which an update of one step has none of) break a rule
    leaves the policy as it was."""
