"""Differences between methods over training seeds and scenarios, with the one interval of all claims of training. Pure.

Another study would draw other training seeds and other tasks of this kind, so the interval must hold for both. Up to
five seeds it is the larger of two: Student's over the seeds, and Student's over the scenarios. With more seeds the
larger of two misses the truth too often, so their variances are added.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tasks.core.evaluation.differences import Means, PairedTest, bounds, student
from tasks.core.evaluation.tgc_sgc import without_rounding

BySeed = Mapping[int, Means]
"""Mean success of each task (or scenario) by training seed."""


def method_test(first: BySeed, second: BySeed, confidence: float) -> PairedTest | None:
    """Test the mean of second - first over the seeds and tasks that both have; None when they share nothing.

    The interval holds for other seeds and other tasks, as described above, and p is the interval's. One seed ranks no
    method and one scenario is no sample of tasks, so they have no interval and no p-value, nor have differences without
    spread.
    """
    values, seeds, tasks = _paired(first, second)
    if not values.size:
        return None
    scenarios, pairs = [task[0] for task in tasks], len(set(tasks))
    mean, counts = without_rounding(float(values.mean())), (len(set(seeds)), len(set(scenarios)))
    if min(counts) < 2:
        return PairedTest(100 * mean, None, None, None, None, pairs, counts[1])
    errors = [_clustered_error(values - mean, labels) for labels in (seeds, scenarios)]
    spreads = [(error, count - 1.0) for error, count in zip(errors, counts, strict=True) if error]
    if not spreads:
        return PairedTest(100 * mean, 0.0, None, None, None, pairs, counts[1])
    if counts[0] > FEW_SEEDS:
        spreads = [_added(spreads)]
    tests = [(*student(mean, error, freedom, confidence), error) for error, freedom in spreads]
    reach, _, error = max(tests)
    p_value = max(p for _, p, _ in tests)
    return PairedTest(100 * mean, 100 * error, *bounds(100 * mean, 100 * reach), p_value, pairs, counts[1])


FEW_SEEDS = 5


def _added(spreads: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the standard error of a sum of independent errors and its degrees of freedom (Welch and Satterthwaite)."""
    variance = sum(error**2 for error, _ in spreads)
    return variance**0.5, variance**2 / sum(error**4 / freedom for error, freedom in spreads)


def _paired(first: BySeed, second: BySeed) -> tuple[npt.NDArray[np.float64], list[int], list[tuple[str, ...]]]:
    """Return the differences of shares, with seed and task of each."""
    cells = [
        (second[seed][what] - first[seed][what], seed, what)
        for seed in sorted(first.keys() & second.keys())
        for what in sorted(first[seed].keys() & second[seed].keys())
    ]
    return np.asarray([cell[0] for cell in cells]), [cell[1] for cell in cells], [cell[2] for cell in cells]


def _clustered_error(deviations: npt.NDArray[np.float64], clusters: Sequence[object]) -> float:
    """Return the standard error (a share) as in `tgc_sgc.clustered_estimate`, of deviations from the mean."""
    names = {name: number for number, name in enumerate(dict.fromkeys(clusters))}
    sums = np.bincount([names[name] for name in clusters], weights=deviations)
    return without_rounding(float(np.sqrt(len(names) / (len(names) - 1) * np.sum(sums**2)))) / deviations.size
