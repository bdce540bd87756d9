"""What estimators and filters see of an iteration's rollouts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tasks.advantage_filtering.estimators import Flags, Floats
from tasks.core.records.schemas import VOID_REASONS


@dataclass(frozen=True)
class Outcomes:
    """N rollouts as far as the estimators need them, in the order of their table."""

    task_ids: Sequence[str]
    returns: Floats
    successes: Flags
    end_reasons: Sequence[str]
    turn_progress: Sequence[Floats] | None = None
    """[turns] of each, the share of unit tests passed after every turn; None where it was not measured."""

    @property
    def finished(self) -> Flags:
        """[N] True unless the rollout is void (the world broke, or collection stopped before it ended)."""
        return np.array([reason not in VOID_REASONS for reason in self.end_reasons], dtype=np.bool_)

    def all_or_nothing(self) -> "Outcomes":
        """The same with the return 1 where every unit test passed, and 0 elsewhere."""
        return replace(self, returns=self.successes.astype(np.float64))
