"""The `advantages` section of params.yaml: an estimator and a filter."""

from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from tasks.core.config.section import Section

StdKind = Literal["population", "sample"]
PairChoice = Literal["sampled", "best_and_worst"]
VarianceMeasure = Literal["groups", "mass", "softmax", "largest"]
Returns = Literal["share", "all_or_nothing", "shuffled"]
BY_TURN = ("turn_progress", "turn_progress_centred")
"""Estimators that label turns."""


class AdvantageConfig(Section):
    """Returns to advantages, and which rollouts train."""

    renamed: ClassVar = {"normalise_by_std": "divide_by_std", "all_or_nothing": "returns"}

    estimator: Literal[
        "leave_one_out", "group_mean", "success", "episode_return", "turn_progress", "turn_progress_centred"
    ] = "leave_one_out"
    """How returns become advantages. leave_one_out: K/(K-1) (R - mean), the paper's. group_mean: R - mean; divided by
    the standard deviation, GRPO's. success: 1 where every unit test passed, else 0 (expert iteration). episode_return:
    R, for a critic's baseline (update.critic) or `normalise_over_batch`. turn_progress: one advantage for each
    turn, its return-to-go of progress with that of the others left out as baseline; needs collection.turn_progress.
    turn_progress_centred: the same, with the mean over all turns of the task's rollouts as baseline (as ProCredit does,
    arXiv 2609.27532)."""
    returns: Returns = "share"
    """Return of a rollout. share: of its unit tests, the share that passed. all_or_nothing: 1 where every test passed,
    else 0 (CANOPY). shuffled: the share of another finished rollout of the iteration, drawn at random; a control: what
    is learnt then does not come from the reward."""
    divide_by_std: StdKind | None = None
    """Divide by the standard deviation of the group's returns. `population` has K in its denominator, as LOOP's code
    does for its ablation and for GRPO; `sample` K - 1, as RAGEN, verl and TRL do. null: no division."""
    normalise_over_batch: bool = False
    """Normalise over the policy tokens of the whole batch (REINFORCE++). Their mean over all finished rollouts of the
    iteration is subtracted and their standard deviation divides (arXiv 2501.03262; verl)."""
    pair_gap: float | None = Field(None, ge=0, lt=1)
    """Label pairs of rollouts whose returns differ by more than this. In place of advantages, two rollouts of every
    task (DMPO and DPO; `update.objective: preference` needs it). `estimator` and `min_absolute_advantage` decide
    nothing then."""
    pair_choice: PairChoice = "sampled"
    """Which two rollouts make a pair. sampled: drawn among the task's, as the LOOP paper does for DMPO. best_and_worst:
    the one with the highest and the one with the lowest return. Of a searched tree it is always the best and the worst
    turn."""
    min_absolute_advantage: float = Field(0.01, ge=0)
    """Drop rollouts with a smaller absolute advantage. Exactly those: |A| is taken to be equal to this within 1e-9,
    which is more than its rounding and less than any two different advantages from fractions of unit tests are
    apart."""
    top_variance_share: float = Field(1.0, gt=0, le=1)
    """Keep this share of the groups, whose returns vary most (StarPO-S). They vary by their standard deviation;
    StarPO-S keeps 0.25."""
    variance_share_of: VarianceMeasure = "groups"
    """The whole of which `top_variance_share` is a share. groups: the number of groups. mass: the sum of their standard
    deviations; the fewest groups that make it up are kept, so that their number follows the batch, and a group of equal
    returns is never among them, not at 1.0 either (RAGEN-2, arXiv 2604.06268, whose top-p is 0.9). softmax: likewise,
    of their softmax (its code's other top-p). largest: the largest of them; groups that reach the share of it are kept,
    so that a smaller share keeps more, at 1.0 the largest alone (its code's min-p)."""

    @property
    def filters_groups(self) -> bool:
        """Whether groups may be dropped for how little their returns vary."""
        return self.top_variance_share < 1 or self.variance_share_of != "groups"

    @property
    def by_turn(self) -> bool:
        """Whether each turn has an advantage of its own."""
        return self.estimator in BY_TURN

    @property
    def smallest_group(self) -> int:
        """Finished rollouts of a task without which none of them trains: 2 where they are compared with each other."""
        alone = self.estimator in ("success", "episode_return") and self.pair_gap is None
        return 1 if alone and self.divide_by_std is None and not self.filters_groups else 2

    @field_validator("estimator", mode="before")
    @classmethod
    def _is_divided_once(cls, estimator: Any) -> Any:
        if estimator == "group_normalised":
            raise ValueError("`group_normalised` is now `group_mean` with `divide_by_std: sample` (or `population`)")
        return estimator

    @model_validator(mode="after")
    def _only_advantages_of_rollouts_are_scaled(self) -> "AdvantageConfig":
        if self.estimator == "success" and self.divide_by_std:
            raise ValueError("divide_by_std needs an estimator with a baseline: `success` is 0 or 1; set it to null")
        if self.estimator == "success" and self.returns == "all_or_nothing" and not self.filters_groups:
            raise ValueError("returns: all_or_nothing is what estimator: success takes already; set it to share")
        if self.estimator == "success" and self.normalise_over_batch:
            raise ValueError("normalise_over_batch would train against failures, which `success` drops; set false")
        label = "pair_gap" if self.pair_gap is not None else f"estimator: {self.estimator}"
        if self.pair_gap is not None or self.by_turn:
            if self.divide_by_std:
                raise ValueError(f"divide_by_std is for one advantage per rollout; with {label} set it to null")
            if self.normalise_over_batch:
                raise ValueError(f"normalise_over_batch is for one advantage per rollout; with {label} set it to false")
        if self.by_turn and self.returns != "share":
            raise ValueError(f"returns: {self.returns} does not fit progress by turn; with {label} set it to share")
        return self
