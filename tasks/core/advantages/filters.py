"""The choice of the rollouts to train on: pure masks over advantages and groups."""

import math
from collections.abc import Callable

import numpy as np

from tasks.core.advantages.estimators import Flags, Floats
from tasks.core.config.advantages import VarianceMeasure

VarianceFilter = Callable[[Floats, float], Flags]
"""Maps the groups' standard deviations of returns [G] and a share in (0, 1] to the mask of kept groups [G]."""

_TOLERANCE = 1e-9
"""Tolerance for |A| = minimum. An advantage from returns that are fractions of n unit tests is a multiple of
1 / (n (K - 1)) or of 1 / (n K), rounded by about 1e-16. Near a minimum of 1/100 all other values are at least 1 / (100
n K) away: while n K is below 10^7, every decision is as exact fractions would make it.
"""
_ROUNDING = 1e-9
"""Relative tolerance for stds whose sum equals the wanted share except for rounding."""


def large_enough(advantages: Floats, minimum: float) -> Flags:
    """Return True where |A| >= `minimum` (within 1e-9); the kept count is never rounded up to a batch size (LOOP, 4.3).

    Without a tolerance, rounding decides about |A| = 0.01: 0.6 - 0.59 is more, 0.29 - 0.28 is less. NaN stays, so that
    the table of the batch refuses it.
    """
    kept: Flags = ~(np.abs(advantages) < minimum - _TOLERANCE)
    return kept


def most_varied(stds: Floats, share: float) -> Flags:
    """Return True for the `share` of groups (rounded up) whose returns vary most (StarPO-S).

    Ties: the earlier group.
    """
    kept: Flags = np.zeros(len(stds), dtype=np.bool_)
    count = math.ceil(round(share * len(stds), 9))
    kept[np.argsort(-stds, kind="stable")[:count]] = True
    return kept


def most_mass(stds: Floats, share: float) -> Flags:
    """Return True for the fewest groups, largest first, whose stds sum to `share` of the total (within 1e-9 of it).

    Ties: the earlier group. A group with a std of 0 is never kept; at a share of 1 all others are. This is RAGEN-2's
    top-p over rewards' stds (arXiv 2604.06268; in its code `top_p`, `linear`, `include_zero: False`), without the slack
    of 0.01 that its code subtracts from the sum to reach.
    """
    return _fewest(stds, stds, share)


def most_softmax_mass(stds: Floats, share: float) -> Flags:
    """Return groups as `most_mass` does, but of the softmax of the stds that are not 0 (RAGEN-2: `top_p`, `softmax`).

    Stds of returns lie within 0.71 of each other, so no group weighs more than about twice another: this keeps nearly
    the share of the groups that vary at all.
    """
    return _fewest(stds, np.exp(stds), share)


def near_the_largest(stds: Floats, share: float) -> Flags:
    """Return True for groups whose std is not 0 and at least `share` of the largest (RAGEN-2's code: `min_p`)."""
    kept: Flags = (stds > 0) & (stds >= share * stds.max(initial=0.0) * (1 - _ROUNDING))
    return kept


def _fewest(stds: Floats, weights: Floats, share: float) -> Flags:
    """Return True for the fewest groups with a std, largest first, whose weights sum to `share` of their total."""
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
