"""The `evaluation` section of params.yaml: how checkpoints are evaluated on dev and which one wins."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from tasks.core.config.collection import ChangedLimits
from tasks.core.config.section import UNVERSIONED, Section


class EvaluationConfig(Section):
    """Dev evaluation during training. The paper: 50 turns; best of N by dev TGC."""

    every: Annotated[int, UNVERSIONED] = Field(2, ge=1, strict=True)
    """Evaluate after every n-th iteration. And always before the first and after the last."""
    temperature: float = Field(0.1, ge=0)
    """Sampling temperature; 0 is greedy."""
    top_k: int = Field(0, ge=0)
    """Sample among this many likeliest tokens. 0: among all. As `top_p`, for models whose makers name it; training
    samples from the whole distribution."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Sample among the likeliest tokens of this probability together."""
    rollouts_per_task: int = Field(1, ge=1)
    """Rollouts of every task."""
    limits: ChangedLimits = ChangedLimits()
    """Budget of an episode. null: as `collection.limits`."""
    scenarios: int | None = Field(None, ge=1)
    """Play only so many scenarios. At equal distances over the split, which has them by difficulty; null: all."""


class ScoringConfig(Section):
    """Test-N and Test-C. The paper: five evaluation runs of the selected checkpoint."""

    renamed: ClassVar[Mapping[str, str]] = {"evaluation_runs": "rollouts_per_task"}

    rollouts_per_task: int = Field(1, ge=1)
    """Evaluation runs of every task. Each has a seed of its own and plays every task once."""
    temperature: float = Field(0.1, ge=0)
    """Sampling temperature; 0 is greedy."""
    top_k: int = Field(0, ge=0)
    """Sample among this many likeliest tokens. 0: among all. As `top_p`, for models whose makers name it; training
    samples from the whole distribution."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Sample among the likeliest tokens of this probability together."""
    limits: ChangedLimits = ChangedLimits()
    """Budget of an episode, the test budget. null: as in dev evaluation."""
    at_training_budget: bool = False
    """Play each split at the training budget too. That is `collection.limits`, with the same tasks and seeds: trained
    at one budget, tested at another, and both reported (CANOPY). The figures are `training_budget` in
    `scores/<split>.json`, which names both budgets; the scores proper, and all that reads them, stay those at the test
    budget. Nothing is played twice where the two are the same. The context length is no part of a budget."""
    scenarios: int | None = Field(None, ge=1)
    """Play only so many scenarios. At equal distances over the split, which has them by difficulty; null: all."""
