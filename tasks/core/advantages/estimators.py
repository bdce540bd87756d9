"""Returns to advantages: one pure function per estimator, on the rollouts of ONE task.

Every function takes `returns` [K] (float64, in [0, 1]) and `successes` [K] (bool) of the rollouts that count, and
gives advantages [K] (float64). K differs between tasks (early stopping leaves 4, 5 or 6). Those with a baseline raise
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
    """K / (K - 1) (R_k - mean R), which equals R_k minus the mean of the OTHER returns (LOOP, section 4.1; RLOO)."""
    count = len(returns)
    return group_mean(returns, successes) * (count / (count - 1))


def group_mean(returns: Floats, successes: Flags) -> Floats:
    """R_k - mean R: the baseline of GRPO (DeepSeekMath, eq. 3), which divides by the std, and of Dr. GRPO."""
    _require_group(returns)
    return _exact_zero_if_equal(returns, returns - returns.mean())


def success(returns: Floats, successes: Flags) -> Floats:
    """1 where every unit test passed, else 0: the policy gradient is then the cross-entropy of expert iteration."""
    return successes.astype(np.float64)


def episode_return(returns: Floats, successes: Flags) -> Floats:
    """R_k itself, for a baseline that comes later: a critic's, or the batch's mean."""
    return returns.copy()


def divided_by_std(advantages: Floats, returns: Floats, kind: StdKind) -> Floats:
    """Advantages over the group's standard deviation (GRPO; LOOP's ablation); 0 where all returns are equal."""
    spread = return_std(returns, kind)
    return advantages / spread if spread > 0 else np.zeros_like(advantages)


def return_std(returns: Floats, kind: StdKind = "sample") -> float:
    """Standard deviation, with K (population) or K - 1 (sample) below; exactly 0 when all returns are equal."""
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
    """Without this a threshold of 0 would train on rounding, and a division by the std would make it as large as 1."""
    return np.zeros_like(centred) if are_equal(returns) else centred
