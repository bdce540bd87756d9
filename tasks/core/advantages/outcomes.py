"""The part of an iteration's rollouts that estimators and filters see."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tasks.core.advantages.estimators import Flags, Floats
from tasks.core.config.advantages import Returns
from tasks.core.records.documents import read_document
from tasks.core.records.schemas import VOID_REASONS
from tasks.core.records.timings import Timings


@dataclass(frozen=True)
class Outcomes:
    """N rollouts in the order of their table, reduced to what the estimators need."""

    task_ids: Sequence[str]
    returns: Floats
    successes: Flags
    end_reasons: Sequence[str]
    policy_tokens: NDArray[np.int64]
    """[N] tokens that the policy sampled in each rollout; 0 where the opening is too long for its context."""
    turn_progress: Sequence[Floats] | None = None
    """[turns] of each rollout: the share of unit tests passed after every turn; None where it was not measured."""

    @property
    def finished(self) -> Flags:
        """Return [N], True unless the rollout is void (the world broke, or collection stopped before it ended)."""
        return np.array([reason not in VOID_REASONS for reason in self.end_reasons], dtype=np.bool_)

    @property
    def sampled(self) -> Flags:
        """Return [N], False where the policy sampled no token."""
        return self.policy_tokens > 0

    def rewarded(self, returns: Returns, seed: int) -> "Outcomes":
        """Return the same rollouts with the returns that `advantages.returns` asks for; `seed` decides the order."""
        match returns:
            case "share":
                return self
            case "all_or_nothing":
                return replace(self, returns=self.successes.astype(np.float64))
            case "shuffled":
                return self._shuffled(np.random.default_rng(seed))

    def _shuffled(self, random: np.random.Generator) -> "Outcomes":
        given, taken = np.flatnonzero(self.finished), np.arange(len(self.returns))
        taken[given] = random.permutation(given)
        return replace(self, returns=self.returns[taken], successes=self.successes[taken])


def read_outcomes(rollouts: pa.Table) -> Outcomes:
    """Return the outcomes in a ROLLOUTS table."""
    return Outcomes(
        task_ids=rollouts["task_id"].to_pylist(),
        returns=rollouts["return"].to_numpy(),
        successes=rollouts["success"].to_numpy(),
        end_reasons=rollouts["end_reason"].to_pylist(),
        policy_tokens=_policy_tokens(rollouts["policy_mask"].combine_chunks()),
        turn_progress=_turn_progress(rollouts),
    )


def most_frequent_fault(timings: Path) -> str:
    """Return the most frequent fault (see `Timings`), or "" without the file, since only an error message uses it."""
    return read_document(timings, Timings).most_frequent_fault if timings.exists() else ""


def _policy_tokens(masks: pa.LargeListArray) -> NDArray[np.int64]:
    owners = pc.list_parent_indices(masks).filter(pc.list_flatten(masks)).to_numpy()
    return np.bincount(owners, minlength=len(masks))


def _turn_progress(rollouts: pa.Table) -> list[Floats] | None:
    if "turn_progress" not in rollouts.column_names:
        return None
    return [np.array(row, dtype=np.float64) for row in rollouts["turn_progress"].to_pylist()]
