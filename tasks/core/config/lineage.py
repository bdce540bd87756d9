"""The `lineage` section of params.yaml: what MLflow is told, and when a model version may become champion."""

from typing import Literal

from pydantic import Field

from tasks.core.config.section import Section


class PromotionRule(Section):
    """A version becomes champion if it is better than the present one on dev and not worse on Test-N.

    Where there is no champion yet, the base policy stands in for it.
    """

    metric: Literal["tgc", "sgc"] = "tgc"
    better_on: str = "dev"
    """The split on which the difference must exceed `min_gain`."""
    min_gain: float = Field(0.0, ge=0)
    """In percentage points."""
    not_worse_on: str = "test_normal"
    """The split on which the interval of the difference must not lie wholly below zero."""
    confidence: float = Field(0.95, gt=0, lt=1)
    """Confidence of all intervals that comparisons print."""


class LineageConfig(Section):
    """Names in MLflow. The server is MLFLOW_TRACKING_URI; without it, sqlite:///mlflow.db in the project's root."""

    experiment: str = "loopline"
    registered_model: str | None = None
    """None: one for each world and base model, such as loopline-pocketworld-pocket."""
    traced_rollouts: int = Field(1, ge=0, le=100)
    """Rollouts of every iteration, of every dev evaluation and of each scored policy that become traces: drawn by the
    run's seed, the same ones in equal runs. 0: none."""
    promotion: PromotionRule = PromotionRule()
