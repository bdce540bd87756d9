"""Choice of the rollouts that train: pure masks over advantages and groups."""

import math

import numpy as np

from tasks.advantage_filtering.estimators import Flags, Floats


def large_enough(advantages: Floats, minimum: float) -> Flags:
    """True where |A| >= `minimum`, exactly: never rounded up to a batch size (LOOP, section 4.3)."""
    kept: Flags = np.abs(advantages) >= minimum
    return kept


def most_varied(stds: Floats, share: float) -> Flags:
    """True for the `share` of groups (rounded up) whose returns vary most (StarPO-S). Ties: the earlier group."""
    kept: Flags = np.zeros(len(stds), dtype=np.bool_)
    count = math.ceil(round(share * len(stds), 9))
    kept[np.argsort(-stds, kind="stable")[:count]] = True
    return kept
