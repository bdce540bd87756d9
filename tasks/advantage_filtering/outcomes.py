"""What estimators and filters see of an iteration's rollouts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

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


def read_outcomes(rollouts: pa.Table) -> Outcomes:
    """The outcomes in a ROLLOUTS table."""
    return Outcomes(
        task_ids=rollouts["task_id"].to_pylist(),
        returns=rollouts["return"].to_numpy(),
        successes=rollouts["success"].to_numpy(),
        end_reasons=rollouts["end_reason"].to_pylist(),
        turn_progress=_turn_progress(rollouts),
    )


def _turn_progress(rollouts: pa.Table) -> list[Floats] | None:
    if "turn_progress" not in rollouts.column_names:
        return None
    return [np.array(row, dtype=np.float64) for row in rollouts["turn_progress"].to_pylist()]
