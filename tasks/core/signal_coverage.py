"""The share of groups that carry a signal, and the number of rollouts per task that a wanted share needs. Pure.

A group of K rollouts of one task teaches a policy-gradient method nothing when all succeed or all fail. With a success
rate p it teaches something with probability 1 - p^K - (1 - p)^K. The rates come from a pilot: a beta-binomial model,
its prior fitted to all tasks by maximum likelihood (empirical Bayes). So a task that failed n times out of n counts as
hopeless only as far as the other tasks suggest, not as impossible. Returns between 0 and 1 (shares of unit tests) may
differ where successes do not: the share observed by return can be higher.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import betaln

Floats = NDArray[np.float64]
_LOG_RANGE = (-5.0, 7.0)
"""Range of the prior's parameters: from nearly certain tasks to tasks that are all alike."""
_MEMORY = 0.5
"""Weight of a task's earlier rollouts each time it is played: the policy changes, and its rates with it."""


def signal_share(success_rate: ArrayLike, rollouts: int) -> Floats:
    """Return 1 - p^K - (1 - p)^K for success rates p in [0, 1] (any shape) and groups of K >= 1 rollouts."""
    rate = np.asarray(success_rate, dtype=np.float64)
    share: Floats = 1 - rate**rollouts - (1 - rate) ** rollouts
    return share


@dataclass(frozen=True)
class Coverage:
    """Success rates of tasks as far as some rollouts show them: a Beta distribution for each task.

    `alpha` and `beta` [tasks] are positive.
    """

    alpha: Floats
    beta: Floats

    def share(self, rollouts: int) -> float:
        """Return the expected share of groups of `rollouts` with a signal, with all tasks equally likely."""
        return float(self.by_task(rollouts).mean())

    def by_task(self, rollouts: int) -> Floats:
        """Return the expectation [tasks] of `signal_share` over each task's distribution."""
        solved = np.exp(betaln(self.alpha + rollouts, self.beta) - betaln(self.alpha, self.beta))
        failed = np.exp(betaln(self.alpha, self.beta + rollouts) - betaln(self.alpha, self.beta))
        expected: Floats = 1 - solved - failed
        return expected


def coverage(successes: Sequence[float], rollouts: Sequence[float]) -> Coverage:
    """Fit coverage to each task's number of successes and rollouts (discounted numbers are allowed).

    Raises ValueError where there is no rollout, or more successes than rollouts.
    """
    solved, played = np.asarray(successes, dtype=np.float64), np.asarray(rollouts, dtype=np.float64)
    if not played.sum() or (solved > played).any() or (solved < 0).any():
        raise ValueError("success rates need rollouts, and no more successes than rollouts")
    alpha, beta = _prior(solved, played)
    return Coverage(alpha + solved, beta + played - solved)


class SuccessCounts:
    """Counts of each task's successes in training so far, weighted down with age."""

    def __init__(self, tasks: Iterable[str]) -> None:
        self._successes = dict.fromkeys(tasks, 0.0)
        self._rollouts = dict.fromkeys(self._successes, 0.0)

    def __bool__(self) -> bool:
        """Return whether any rollout was seen."""
        return any(self._rollouts.values())

    def add(self, task: str, successes: float, rollouts: float) -> None:
        """Add the rollouts of a task in the next iteration that plays it."""
        self._successes[task] = _MEMORY * self._successes[task] + successes
        self._rollouts[task] = _MEMORY * self._rollouts[task] + rollouts

    def shares(self, rollouts: int) -> Mapping[str, float]:
        """Return, for each task, the probability that a group of `rollouts` carries a signal.

        All counts shape the prior.

        Raises ValueError where there is no rollout.
        """
        shares = coverage(list(self._successes.values()), list(self._rollouts.values())).by_task(rollouts)
        return dict(zip(self._successes, shares.tolist(), strict=True))


def _prior(solved: Floats, played: Floats) -> tuple[float, float]:
    """Return the Beta distribution under which these counts are likeliest."""

    def negative_log_likelihood(logs: Floats) -> float:
        alpha, beta = np.exp(logs)
        return -float((betaln(alpha + solved, beta + played - solved) - betaln(alpha, beta)).sum())

    optimum = minimize(negative_log_likelihood, np.zeros(2), method="L-BFGS-B", bounds=[_LOG_RANGE, _LOG_RANGE])
    alpha, beta = np.exp(optimum.x)
    return float(alpha), float(beta)
