"""The `lineage` section of params.yaml: what MLflow is told, and when a model version may become champion."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field, ValidationInfo, field_validator

from tasks.core.config.section import Section


class PromotionRule(Section):
    """A version becomes champion if its TGC is better than the present one's on dev and not worse on Test-N.

    Where there is no champion yet, the base policy stands in for it.
    """

    constants: ClassVar[Mapping[str, str]] = {
        "metric": "tgc",
        "better_on": "dev",
        "min_gain": "0",
        "confidence": "0.95",
    }

    not_worse_on: str = "test_normal"
    """Split on which it must not be worse. The interval of the difference must not lie wholly below zero."""


class LineageConfig(Section):
    """Names in MLflow. The server is MLFLOW_TRACKING_URI; without it, sqlite:///mlflow.db in the project's root."""

    experiment: str = Field("loopline", max_length=256)
    """MLflow's experiment."""
    registered_model: str | None = Field(None, max_length=256)
    """Name in the model registry. null: one for each world and base model, such as loopline-pocketworld-pocket."""
    traced_rollouts: int = Field(1, ge=0, le=100)
    """Rollouts of each collection and evaluation that become traces. They are drawn by the run's seed, the same in
    equal runs; those of every iteration, of every dev evaluation and of each scored policy. 0: none."""
    promotion: PromotionRule = PromotionRule()
    """When a registered version becomes champion."""

    @field_validator("experiment", "registered_model")
    @classmethod
    def _is_a_name(cls, name: str | None, info: ValidationInfo) -> str | None:
        """Refuse now what MLflow refuses after all training, and names that its filters or addresses can't hold."""
        barred = "/:@'\"`%" if info.field_name == "registered_model" else ""
        if name is not None and (name != name.strip() or not name.strip(".") or set(barred) & set(name)):
            none_of = f", none of {' '.join(barred)}" if barred else ""
            raise ValueError(
                f"{name!r} is no name for MLflow: something other than dots, no blanks at its ends{none_of}"
            )
        return name
