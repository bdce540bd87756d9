"""The `scoring` section of params.yaml: final scores of the selected policy beside the base."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from tasks.core.config.collection import ChangedLimits
from tasks.core.config.section import Section


class ScoringConfig(Section):
    """Test-N and Test-C. The paper: five evaluation runs of the selected checkpoint."""

    renamed: ClassVar[Mapping[str, str]] = {"evaluation_runs": "rollouts_per_task"}

    rollouts_per_task: int = Field(3, ge=1)
    """Evaluation runs: each has a seed of its own and plays every task once."""
    temperature: float = Field(0.1, ge=0)
    limits: ChangedLimits = ChangedLimits()
    """Where they differ from those of dev evaluation."""
    scenarios: int | None = Field(None, ge=1)
    """Play only n scenarios, at equal distances over the split, which has them by difficulty; None: all."""
