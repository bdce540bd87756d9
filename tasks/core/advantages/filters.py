"""Choice of the rollouts that train: pure masks over advantages and groups."""

import math
from collections.abc import Callable

import numpy as np

from tasks.core.advantages.estimators import Flags, Floats
from tasks.core.config.advantages import VarianceMeasure

VarianceFilter = Callable[[Floats, float], Flags]
"""(standard deviations of the groups' returns [G], share in (0, 1]) -> which groups are kept [G]."""

_TOLERANCE = 1e-9
"""For |A| = minimum. An advantage from returns that are fractions of n unit tests is a multiple of 1 / (n (K - 1)) or
of 1 / (n K), rounded by about 1e-16. Next to a minimum of 1/100 all others are at least 1 / (100 n K) away: while n K
is below 10^7, nothing is decided otherwise than fractions would decide it."""
_ROUNDING = 1e-9
"""For stds whose sum is the share that is wanted, but for rounding; of the sum."""


def large_enough(advantages: Floats, minimum: float) -> Flags:
    """True where |A| >= `minimum` (within 1e-9), never rounded up to a batch size (LOOP, section 4.3).

    Without a tolerance, rounding decides about |A| = 0.01: 0.6 - 0.59 is more, 0.29 - 0.28 is less.
    """
    kept: Flags = np.abs(advantages) >= minimum - _TOLERANCE
    return kept


def most_varied(stds: Floats, share: float) -> Flags:
    """True for the `share` of groups (rounded up) whose returns vary most (StarPO-S). Ties: the earlier group."""
    kept: Flags = np.zeros(len(stds), dtype=np.bool_)
    count = math.ceil(round(share * len(stds), 9))
    kept[np.argsort(-stds, kind="stable")[:count]] = True
    return kept


def most_mass(stds: Floats, share: float) -> Flags:
    """True for the fewest groups whose stds sum to `share` of the sum over all (within 1e-9 of it), largest first.

    Ties: the earlier group. None with a std of 0; at a share of 1 all the others. RAGEN-2's top-p over rewards' stds
    (arXiv 2604.06268; in its code `top_p`, `linear`, `include_zero: False`), without the slack of 0.01 that the code
    takes off the sum to be reached.
    """
    return _fewest(stds, stds, share)


def most_softmax_mass(stds: Floats, share: float) -> Flags:
    """Groups as by `most_mass`, of the softmax of the stds that are not 0 (RAGEN-2's code: `top_p`, `softmax`).

    Stds of returns lie within 0.71 of each other, so that no group weighs more than about twice another: nearly the
    share of the groups that vary at all.
    """
    return _fewest(stds, np.exp(stds), share)


def near_the_largest(stds: Floats, share: float) -> Flags:
    """True for the groups whose std is at least `share` of the largest, and not 0 (RAGEN-2's code: `min_p`)."""
    kept: Flags = (stds > 0) & (stds >= share * stds.max(initial=0.0) * (1 - _ROUNDING))
    return kept


def _fewest(stds: Floats, weights: Floats, share: float) -> Flags:
    """True for the fewest groups with a std whose weights sum to `share` of the sum over all of them, largest first."""
    kept: Flags = stds > 0
    if share == 1 or not kept.any():
        return kept
    order = np.argsort(-stds, kind="stable")
    mass = np.cumsum(np.where(kept, weights, 0.0)[order])
    reached = mass >= share * mass[-1] * (1 - _ROUNDING)
    kept[order[int(reached.argmax()) + 1 :]] = False
    return kept


VARIANCE_FILTERS: dict[VarianceMeasure, VarianceFilter] = {
    "groups": most_varied,
    "mass": most_mass,
    "softmax": most_softmax_mass,
    "largest": near_the_largest,
}
