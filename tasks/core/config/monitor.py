"""The `monitor` section of params.yaml: what is watched for a collapse of training, and what is done about one."""

from typing import Literal

from pydantic import Field, model_validator

from tasks.core.config.section import Section

MonitorAction = Literal["none", "stop", "lower_learning_rate", "tighten_filter", "discard_update"]


class InformationConfig(Section):
    """The sample on which an update measures how much responses say of their prompts (RAGEN-2).

    It is drawn from the batch that trains, which is what an update reads: rollouts that the filter dropped are not in
    it, and with few groups left (StarPO-S keeps a quarter) fewer prompts than asked for.
    """

    prompts: int = Field(8, ge=0)
    """Prompts under which each response is read. At most, all different; 0: nothing is measured."""
    responses: int = Field(16, ge=1)
    """First turns, from these prompts in turn. The cost: `prompts` x `responses` forward passes, of a prompt and a turn
    each; in the default profile 4% of an update's CPU time."""

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
    action: MonitorAction = "none"
    """Action after a warning. stop: no further iteration is played; those that were can be scored with `iterations` set
    to their number. lower_learning_rate: by `learning_rate_factor`, once more for every iteration with a new warning.
    tighten_filter: only `variance_share` of the groups train from then on. discard_update: an update whose own figures
    (gradient norm, and KL before its last step, which an update of one step has none of) break a rule leaves the policy
    as it was."""
    learning_rate_factor: float = Field(0.3, gt=0, le=1)
    """Factor of lower_learning_rate."""
    variance_share: float = Field(0.5, gt=0, le=1)
    """Share of groups of tighten_filter. As advantages.top_variance_share, and of what advantages.variance_share_of
    says. RAGEN: the half of the groups that varies most was enough that FrozenLake did not collapse."""
