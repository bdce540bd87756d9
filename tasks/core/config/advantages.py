"""The `advantages` section of params.yaml: an estimator and a filter."""

from typing import Literal

from pydantic import Field

from tasks.core.config.section import Section


class AdvantageConfig(Section):
    """Returns to advantages, and which rollouts train."""

    estimator: Literal["leave_one_out", "group_normalised", "group_mean", "success"] = "leave_one_out"
    """leave_one_out: K/(K-1) (R - mean), the paper's. group_normalised: (R - mean) / std (GRPO). group_mean: R - mean.
    success: 1 where every unit test passed, else 0 (expert iteration)."""
    normalise_by_std: bool = False
    """Divide the leave-one-out advantage by the group's standard deviation (the paper's ablation)."""
    min_absolute_advantage: float = Field(0.01, ge=0)
    """Rollouts with a smaller |A| are dropped, exactly those."""
    top_variance_share: float = Field(1.0, gt=0, le=1)
    """Keep only this share of the groups, those with the highest standard deviation of returns (StarPO-S: 0.25)."""
