"""Estimators: pure functions that turn returns into advantages, on the rollouts of ONE task.

Every function takes `returns` [K] (float64, in [0, 1]) and `successes` [K] (bool) of the finished rollouts, and returns
advantages [K] (float64). K differs between tasks (early stopping leaves 4, 5 or 6). Estimators with a baseline raise
ValueError for K < 2, where there is nothing to compare with.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tasks.core.config.advantages import StdKind
from tasks.core.spread import are_equal

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Estimator = Callable[[Floats, Flags], Floats]


def leave_one_out(returns: Floats, successes: Flags) -> Floats:
    """Return K / (K - 1) (R_k - mean R), equal to R_k minus the mean of the OTHER returns (LOOP, section 4.1; RLOO)."""
    count = len(returns)
    return group_mean(returns, successes) * (count / (count - 1))


def group_mean(returns: Floats, successes: Flags) -> Floats:
    """Return R_k - mean R: the advantage of Dr.

    GRPO, and of GRPO (DeepSeekMath, eq. 3) before it divides by the std.
    """
    _require_group(returns)
    return _exact_zero_if_equal(returns, returns - returns.mean())


def success(returns: Floats, successes: Flags) -> Floats:
    """Return 1 where every unit test passed, else 0: the policy gradient then is expert iteration's cross-entropy."""
    return successes.astype(np.float64)


def episode_return(returns: Floats, successes: Flags) -> Floats:
    """Return R_k itself, for a baseline that comes later: a critic's value, or the batch's mean."""
    return returns.copy()


def divided_by_std(advantages: Floats, returns: Floats, kind: StdKind) -> Floats:
    """Divide advantages by the group's std (GRPO; LOOP's ablation); return 0 where all returns are equal."""
    spread = return_std(returns, kind)
    return advantages / spread if spread > 0 else np.zeros_like(advantages)


def return_std(returns: Floats, kind: StdKind = "sample") -> float:
    """Return the std with denominator K (population) or K - 1 (sample); exactly 0 if all returns are equal."""
    return 0.0 if are_equal(returns) else float(returns.std(ddof={"population": 0, "sample": 1}[kind]))


ESTIMATORS: dict[str, Estimator] = {
    "leave_one_out": leave_one_out,
    "group_mean": group_mean,
    "success": success,
    "episode_return": episode_return,
}


def _require_group(returns: Floats) -> None:
    if len(returns) < 2:
        raise ValueError(f"an advantage needs at least 2 rollouts of the same task, found {len(returns)}")


def _exact_zero_if_equal(returns: Floats, centred: Floats) -> Floats:
    """Replace rounding errors by exact zeros if all returns are equal.

    Otherwise a threshold of 0 would train on rounding errors, and a division by the std would scale them up to 1.
    """
    return np.zeros_like(centred) if are_equal(returns) else centred
