"""Share of groups that carry a signal, and the number of rollouts per task that it asks for. Pure.

A group of K rollouts of one task teaches a policy-gradient method nothing when all succeed or all fail. With a success
rate p it teaches something with probability 1 - p^K - (1 - p)^K. The rates come from a pilot: a beta-binomial model,
its prior fitted to all tasks by maximum likelihood (empirical Bayes), so that a task that failed n times out of n is
taken for as hopeless as the other tasks say it is, not for impossible. Returns between 0 and 1 (shares of unit tests)
may differ where successes do not: what is observed by return can lie above.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import betaln

Floats = NDArray[np.float64]
MOST_ROLLOUTS = 64
"""The largest group that is proposed."""
_LOG_RANGE = (-5.0, 7.0)
"""Range of the prior's parameters: from nearly certain tasks to tasks that are all alike."""
_MEMORY = 0.5
"""Weight of a task's earlier rollouts each time that it is played: the policy changes, so its rates do."""
_TIE = 1e-9


def signal_share(success_rate: ArrayLike, rollouts: int) -> Floats:
    """1 - p^K - (1 - p)^K for success rates p in [0, 1] (any shape) and groups of K >= 1 rollouts."""
    rate = np.asarray(success_rate, dtype=np.float64)
    found: Floats = 1 - rate**rollouts - (1 - rate) ** rollouts
    return found


@dataclass(frozen=True)
class Coverage:
    """Success rates of tasks as far as some rollouts tell: a Beta distribution for each.

    `alpha` and `beta` [tasks] are positive.
    """

    alpha: Floats
    beta: Floats

    def share(self, rollouts: int) -> float:
        """Expected share of groups of `rollouts` with a signal, every task as likely as another."""
        return float(self.by_task(rollouts).mean())

    def by_task(self, rollouts: int) -> Floats:
        """[tasks] The expectation of `signal_share` over each task's distribution."""
        solved = np.exp(betaln(self.alpha + rollouts, self.beta) - betaln(self.alpha, self.beta))
        failed = np.exp(betaln(self.alpha, self.beta + rollouts) - betaln(self.alpha, self.beta))
        found: Floats = 1 - solved - failed
        return found

    def smallest_group(self, wanted: float) -> int | None:
        """The smallest K whose share reaches `wanted`; None where MOST_ROLLOUTS does not."""
        return next((k for k in range(2, MOST_ROLLOUTS + 1) if self.share(k) >= wanted), None)

    def best_group(self, budget: int) -> int:
        """The K that gives the most groups with a signal from `budget` rollouts; of equals the largest.

        A task is drawn once at most. Without that bound it is 3 for any rates: 1 - p^3 - (1 - p)^3 = 3 p (1 - p), a
        third of which each rollout brings, as in pairs; more rollouts per group bring less each.
        """
        signals = {k: self.signals(budget, k) for k in range(2, min(budget, MOST_ROLLOUTS) + 1)}
        most = max(signals.values())
        return max(k for k, found in signals.items() if found >= most - _TIE)

    def signals(self, budget: int, rollouts: int) -> float:
        """Expected number of groups with a signal: `budget` rollouts in groups of `rollouts`, a task once at most."""
        return min(budget / rollouts, len(self.alpha)) * self.share(rollouts)


def coverage(successes: Sequence[float], rollouts: Sequence[float]) -> Coverage:
    """Coverage by each task's number of successes and rollouts (discounted numbers will do).

    Raises ValueError where there is no rollout, or more successes than rollouts.
    """
    solved, played = np.asarray(successes, dtype=np.float64), np.asarray(rollouts, dtype=np.float64)
    if not played.sum() or (solved > played).any() or (solved < 0).any():
        raise ValueError("success rates need rollouts, and no more successes than rollouts")
    alpha, beta = _prior(solved, played)
    return Coverage(alpha + solved, beta + played - solved)


class SuccessCounts:
    """Counts of each task's successes in training so far, older ones counting less."""

    def __init__(self, tasks: Iterable[str]) -> None:
        self._successes = dict.fromkeys(tasks, 0.0)
        self._rollouts = dict.fromkeys(self._successes, 0.0)

    def __bool__(self) -> bool:
        """Whether any rollout was seen."""
        return any(self._rollouts.values())

    def add(self, task: str, successes: float, rollouts: float) -> None:
        """The rollouts of a task in the next iteration that plays it."""
        self._successes[task] = _MEMORY * self._successes[task] + successes
        self._rollouts[task] = _MEMORY * self._rollouts[task] + rollouts

    def shares(self, rollouts: int) -> Mapping[str, float]:
        """Probability of each task that a group of `rollouts` carries a signal; all that were played shape the prior.

        Raises ValueError where there is no rollout.
        """
        found = coverage(list(self._successes.values()), list(self._rollouts.values())).by_task(rollouts)
        return dict(zip(self._successes, found.tolist(), strict=True))


def _prior(solved: Floats, played: Floats) -> tuple[float, float]:
    """The Beta distribution under which these counts are likeliest."""

    def negative_log_likelihood(logs: Floats) -> float:
        alpha, beta = np.exp(logs)
        return -float((betaln(alpha + solved, beta + played - solved) - betaln(alpha, beta)).sum())

    found = minimize(negative_log_likelihood, np.zeros(2), method="L-BFGS-B", bounds=[_LOG_RANGE, _LOG_RANGE])
    alpha, beta = np.exp(found.x)
    return float(alpha), float(beta)
