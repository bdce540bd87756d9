"""Differences between policies' scores, paired by task, and between methods over training seeds. Pure.

`paired_test`: the interval, over scenarios, is of another draw of tasks of this kind for these two policies. Whether a
method is better than another is asked of several training seeds (`method_test`), with the one interval of all claims of
training. Another study would draw other training seeds and other tasks of this kind, so it must hold for both. Up to
five seeds it is the larger of two: Student's over the seeds, and Student's over the scenarios. With more seeds the
larger of two misses the truth too often, so their variances are added.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit

from tasks.core.evaluation.tgc_sgc import (
    Key,
    Outcome,
    clustered_estimate,
    solved_scenarios,
    solved_tasks,
    without_rounding,
)

CONFIDENCE = 0.95
"""Confidence of the intervals of comparisons. No knob: who may choose it after seeing the scores has no interval."""
Means = Mapping[tuple[str, ...], float]
"""Mean success (a share) over the evaluation runs; the scenario comes first in the key."""


@dataclass(frozen=True)
class PairedTest:
    """Second minus first, in percentage points, with the test of it."""

    difference: float
    standard_error: float | None
    """None where there is no sample to take it from. Interval and p-value are then None too, and where it is 0:
    without spread there is no test."""
    low: float | None
    high: float | None
    p_value: float | None
    """Two-sided, for the null hypothesis that there is no difference."""
    pairs: int
    """Tasks (SGC: scenarios) that both policies have played."""
    scenarios: int


def task_means(outcomes: Sequence[Outcome]) -> Means:
    """Return the mean success of each task."""
    return _mean_over_runs(solved_tasks(outcomes))


def scenario_means(outcomes: Sequence[Outcome]) -> Means:
    """Return the share of the evaluation runs in which all tasks of a scenario succeeded."""
    return _mean_over_runs(solved_scenarios(outcomes))


METRICS: Mapping[str, Callable[[Sequence[Outcome]], Means]] = {"tgc": task_means, "sgc": scenario_means}


def paired_test(first: Means, second: Means, confidence: float) -> PairedTest | None:
    """Test the mean of second - first over what both have played; None when they share nothing.

    A t test over the scenarios. `confidence` of the interval is a share, say 0.95.
    """
    shared = sorted(first.keys() & second.keys())
    if not shared:
        return None
    clusters = [key[0] for key in shared]
    count = len(set(clusters))
    estimate = clustered_estimate([second[key] - first[key] for key in shared], clusters)
    difference, error = estimate.value, estimate.standard_error
    if not error:
        return PairedTest(difference, error, None, None, None, len(shared), count)
    reach, p_value = student(difference, error, count - 1, confidence)
    return PairedTest(difference, error, *bounds(difference, reach), p_value, len(shared), count)


def student(mean: float, error: float, freedom: float, confidence: float) -> tuple[float, float]:
    """Return how far Student's interval reaches from a mean with this error, and the two-sided p-value of 0."""
    reach = error * float(stdtrit(freedom, 0.5 + confidence / 2))
    return reach, float(2 * stdtr(freedom, -abs(mean) / error))


def bounds(difference: float, reach: float) -> tuple[float, float]:
    """Return the interval of a difference of percentages, which is at most 100 and at least -100."""
    return max(-100.0, difference - reach), min(100.0, difference + reach)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Apply Holm's correction for several tests: the smallest p-value times their number n, the next times n - 1, ...

    Never falling, never over 1; a None (no spread, no test) stays None and is not counted. Source: Holm (1979).
    """
    known = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, index) in enumerate(known):
        highest = max(highest, min(1.0, p * (len(known) - rank)))
        corrected[index] = highest
    return corrected


def _mean_over_runs(solved: Mapping[Key, bool]) -> Means:
    runs: dict[tuple[str, ...], list[bool]] = defaultdict(list)
    for (*what, _), success in solved.items():
        runs[tuple(map(str, what))].append(success)
    return {what: sum(successes) / len(successes) for what, successes in runs.items()}


BySeed = Mapping[int, Means]
"""Mean success of each task (or scenario) by training seed."""


def method_test(first: BySeed, second: BySeed, confidence: float) -> PairedTest | None:
    """Test the mean of second - first over the seeds and tasks that both have; None when they share nothing.

    The interval holds for other seeds and other tasks, as said at the top, and p is the interval's. One seed ranks no
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
