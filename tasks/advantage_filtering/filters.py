"""Choice of the rollouts that train: pure masks over advantages and groups."""

import math

import numpy as np

from tasks.advantage_filtering.estimators import Flags, Floats

_TOLERANCE = 1e-9
"""For |A| = minimum. An advantage from returns that are fractions of n unit tests is a multiple of 1 / (n (K - 1)) or
of 1 / (n K), rounded by about 1e-16. Next to a minimum of 1/100 all others are at least 1 / (100 n K) away: while n K
is below 10^7, nothing is decided otherwise than fractions would decide it."""


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
