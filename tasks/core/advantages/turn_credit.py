"""Turn-level advantages from the progress after each turn: pure functions on the rollouts of ONE task.

A rollout's progress p_k is the share of unit tests that its world's state passes after turn k = 0, 1, ... The value of
its turns from k on is their return-to-go G_k = R - p_{k-1}. `turn_progress` takes p_{-1} = 0: tests that all rollouts
of a task pass before their first turn cancel in the difference to the others. R is the episode's return, so an episode
that does not end loses what it had gained.
"""

from collections.abc import Callable, Sequence

import numpy as np

from tasks.core.advantages.estimators import Floats, leave_one_out
from tasks.core.spread import are_equal

TurnEstimator = Callable[[Floats, Sequence[Floats]], list[Floats]]


def turn_progress(returns: Floats, progress: Sequence[Floats]) -> list[Floats]:
    """Return advantages (of each rollout [T_k]) from returns [K] and progress (of each rollout [T_k]).

    A_{i,k} = G_{i,k} - mean of G_{j,k} over the others j that have a turn k. Where no other has turn k, the others'
    whole returns stand for the value of their turns from i's progress on, and A_{i,k} = G_{i,k} - mean of (R_j -
    p_{i,k-1}), which is the rollout's leave-one-out advantage. The baseline does not depend on turn k of rollout i, so
    it adds no bias. Raises ValueError for K < 2.
    """
    to_go = returns_to_go(returns, progress)
    whole = leave_one_out(returns, returns > 0)
    return [
        np.array([_advantage(to_go, row, turn, float(whole[row])) for turn in range(len(turns))], dtype=np.float64)
        for row, turns in enumerate(to_go)
    ]


def turn_progress_centred(returns: Floats, progress: Sequence[Floats]) -> list[Floats]:
    """Return G_{i,k} minus its mean over all turns of all rollouts (after ProCredit, arXiv 2609.27532).

    Takes and returns what `turn_progress` does. Some unit tests pass before any turn. Their share p_{-1} does not
    cancel here, and is estimated by the least p_0 of the rollouts. With p_{-1} = 0 the first turn would be rewarded for
    them, every later turn would fall below the mean, and rollouts would shrink. A longer rollout weighs more in it.
    """
    to_go = returns_to_go(returns, progress, start=min((gained[0] for gained in progress if len(gained)), default=0.0))
    every = np.concatenate(to_go)
    if are_equal(every):
        return [np.zeros(len(turns)) for turns in to_go]
    return [turns - every.mean() for turns in to_go]


def returns_to_go(returns: Floats, progress: Sequence[Floats], start: float = 0.0) -> list[Floats]:
    """Return G_k = R - p_{k-1} of the turns [T_k] of each rollout, where p_{-1} is `start`."""
    return [total - np.concatenate([[start], gained[:-1]]) for total, gained in zip(returns, progress, strict=True)]


TURN_ESTIMATORS: dict[str, TurnEstimator] = {
    "turn_progress": turn_progress,
    "turn_progress_centred": turn_progress_centred,
}


def _advantage(to_go: Sequence[Floats], row: int, turn: int, alone: float) -> float:
    others = [turns[turn] for other, turns in enumerate(to_go) if other != row and len(turns) > turn]
    if not others:
        return alone
    if are_equal([to_go[row][turn], *others]):
        return 0.0
    return float(-(np.array(others) - to_go[row][turn]).mean())
