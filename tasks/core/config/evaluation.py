"""The `evaluation` section of params.yaml: how checkpoints are evaluated on dev and which one wins."""

from typing import Annotated

from pydantic import Field

from tasks.core.config.collection import ChangedLimits
from tasks.core.config.section import UNVERSIONED, Section


class EvaluationConfig(Section):
    """Dev evaluation during training. The paper: 50 turns; best of N by dev TGC."""

    every: Annotated[int, UNVERSIONED] = Field(2, ge=1, strict=True)
    """Evaluate after every n-th iteration (and always before the first and after the last)."""
    temperature: float = Field(0.1, ge=0)
    top_k: int = Field(0, ge=0)
    """Sample among this many likeliest tokens; 0: among all. As `top_p`, for models whose makers name it; training
    samples from the whole distribution."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Sample among the likeliest tokens that have this share of the probability together."""
    rollouts_per_task: int = Field(1, ge=1)
    limits: ChangedLimits = ChangedLimits()
    """Where they differ from `collection.limits`."""
    scenarios: int | None = Field(None, ge=1)
    """Play only n scenarios, at equal distances over the split, which has them by difficulty; None: all."""
