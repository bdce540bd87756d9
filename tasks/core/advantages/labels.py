"""Labels of a batch's rollouts for training: one advantage each, one for each turn, or membership in a pair.

An advantage for each turn follows from progress: p_k is the share of unit tests that the world's state passes after
turn k = 0, 1, ... The value of a rollout's turns from k on is their return-to-go G_k = R - p_{k-1}. `turn_progress`
takes p_{-1} = 0: tests that all rollouts of a task pass before their first turn cancel in the difference to the others.
R is the episode's return, so an episode that does not end loses what it had gained.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.core.advantages.estimators import ESTIMATORS, Flags, Floats, divided_by_std, leave_one_out
from tasks.core.advantages.filters import large_enough
from tasks.core.advantages.outcomes import Outcomes
from tasks.core.config.advantages import AdvantageConfig, PairChoice
from tasks.core.seeding import derive_seed
from tasks.core.spread import ROUNDING, are_equal, rounded, whiten

Group = NDArray[np.int64]
"""Row numbers of one task's rollouts."""


@dataclass(frozen=True)
class Labels:
    """Labels of N rollouts; 0 and empty for rollouts without a group."""

    advantages: Floats
    """[N]"""
    carry_signal: Flags
    """[N] False where the label is too weak to train on."""
    turn_advantages: list[Floats] | None = None
    """[turns] of each rollout, in place of its single advantage."""
    pairs: NDArray[np.int32] | None = None
    """[N] the number of a rollout's pair, or -1. The pair's better rollout has the advantage 1, the worse -1."""


def label(outcomes: Outcomes, groups: Sequence[Group], config: AdvantageConfig, seed: int) -> Labels:
    """Return labels of the rollouts in `groups`; `seed` decides which rollouts are drawn as pairs.

    Raises ValueError where an input that the labels need is missing.
    """
    if config.pair_gap is not None:
        return _pairs(outcomes, groups, PAIR_CHOICES[config.pair_choice], config.pair_gap, seed)
    if config.estimator in TURN_ESTIMATORS:
        return _by_turn(outcomes, groups, config)
    advantages = np.zeros(len(outcomes.returns))
    for group in groups:
        advantages[group] = _advantages(outcomes, group, config)
    if config.normalise_over_batch and groups:
        rows = np.concatenate(groups)
        # REINFORCE++ (arXiv 2501.03262) normalises over tokens: a longer rollout weighs more in mean and std.
        advantages[rows] = whiten(advantages[rows], outcomes.policy_tokens[rows])
    return Labels(advantages, large_enough(advantages, config.min_absolute_advantage))


def _advantages(outcomes: Outcomes, group: Group, config: AdvantageConfig) -> Floats:
    returns = outcomes.returns[group]
    advantages = ESTIMATORS[config.estimator](returns, outcomes.successes[group])
    return divided_by_std(advantages, returns, config.divide_by_std) if config.divide_by_std else advantages


def _by_turn(outcomes: Outcomes, groups: Sequence[Group], config: AdvantageConfig) -> Labels:
    """Label by turn: a rollout's own advantage is the mean over its turns. It is kept if any turn carries a signal."""
    if outcomes.turn_progress is None:
        raise ValueError(
            f"advantages.estimator: {config.estimator} needs turn_progress; set collection.turn_progress: true"
        )
    by_turn: list[Floats] = [np.zeros(0)] * len(outcomes.returns)
    for group in groups:
        progress = [outcomes.turn_progress[row] for row in group]
        for row, turns in zip(group, TURN_ESTIMATORS[config.estimator](outcomes.returns[group], progress), strict=True):
            by_turn[row] = turns
    advantages = np.array([turns.mean() if len(turns) else 0.0 for turns in by_turn])
    signal = [bool(large_enough(turns, config.min_absolute_advantage).any()) for turns in by_turn]
    return Labels(advantages, np.array(signal, dtype=np.bool_), turn_advantages=by_turn)


def _pairs(outcomes: Outcomes, groups: Sequence[Group], choose: "PairRule", gap: float, seed: int) -> Labels:
    """Label a pair in each group that has two rollouts with tokens, if their returns differ by more than `gap`."""
    count = len(outcomes.returns)
    advantages, pairs = np.zeros(count), np.full(count, -1, dtype=np.int32)
    for number, group in enumerate(groups):
        rows = group[outcomes.sampled[group]]
        if len(rows) < 2:
            continue
        returns = outcomes.returns[rows]
        better, worse = choose(returns, derive_seed(seed, "pair", outcomes.task_ids[rows[0]]))
        if returns[better] - returns[worse] > gap + ROUNDING:
            pair = rows[[better, worse]]
            advantages[pair], pairs[pair] = (1.0, -1.0), number
    return Labels(advantages, pairs >= 0, pairs=pairs)


PairRule = Callable[[Floats, int], tuple[int, int]]
"""Maps (returns [K >= 2] of one task's rollouts, seed) to the indices of the better and the worse of a pair."""


def sampled_pair(returns: Floats, seed: int) -> tuple[int, int]:
    """Draw two rollouts of the task without regard to their returns (DMPO in the LOOP paper)."""
    first, second = np.random.Generator(np.random.PCG64(seed)).choice(len(returns), size=2, replace=False).tolist()
    return (first, second) if returns[first] >= returns[second] else (second, first)


def best_and_worst(returns: Floats, seed: int) -> tuple[int, int]:
    """Return the rollouts with the highest and the lowest return, the earlier of equals."""
    order = rounded(returns)
    return int(order.argmax()), int(order.argmin())


PAIR_CHOICES: dict[PairChoice, PairRule] = {"sampled": sampled_pair, "best_and_worst": best_and_worst}


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
