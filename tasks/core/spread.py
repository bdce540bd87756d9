"""The spread of a few numbers: whether they differ by more than rounding, and the whitening of a batch. Pure."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
ROUNDING = 1e-9
"""Returns are shares of a few tests or sums of a few rewards: two returns that differ by less are equal."""
_VARIANCE_FLOOR = 1e-8


def are_equal(values: Iterable[float]) -> bool:
    """Return whether no two of at least one value differ by more than rounding can explain.

    Rollouts that earn the same add it up in another order: 0.1 + 0.2 - 0.1 is not 0.2 + 0.1 - 0.1 in floating point.
    The tolerance is 1e-9, or this share of the largest value where that is beyond 1.
    """
    numbers = np.asarray(values if isinstance(values, np.ndarray) else list(values), dtype=np.float64)
    return bool(np.ptp(numbers) <= ROUNDING * max(1.0, float(np.abs(numbers).max())))


def rounded(values: Floats) -> Floats:
    """Return values [N] rounded to nine places for sorting, so that values that differ by rounding alone are a tie."""
    return np.round(values, 9)


def whiten(values: Floats, counts: NDArray[np.int64] | int = 1) -> Floats:
    """Return (x - mean) / sqrt(variance + 1e-8) of values [N], each of which counts as often as `counts` [N] says.

    The variance is a sample's, as in verl's `masked_whiten` (verl/utils/torch_functional.py). Returns 0 where all
    counted values are equal, or none counts.
    """
    counted = np.repeat(values, counts)
    if not len(counted) or are_equal(counted):
        return np.zeros_like(values)
    whitened: Floats = (values - counted.mean()) / np.sqrt(counted.var(ddof=1) + _VARIANCE_FLOOR)
    return whitened
