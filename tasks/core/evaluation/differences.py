"""Differences between two sets of scores, paired by task and seed, with intervals clustered by scenario."""

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

Means = Mapping[tuple[str, ...], float]
"""Mean success (a share) over the evaluation runs; the scenario comes first in the key."""


@dataclass(frozen=True)
class PairedTest:
    """Second minus first policy, in percentage points; t test with (scenarios - 1) degrees of freedom."""

    difference: float
    standard_error: float | None
    """None with a single scenario; interval and p-value are then None too."""
    low: float | None
    high: float | None
    p_value: float | None
    """Two-sided, for the null hypothesis that there is no difference; None where the data show no spread."""
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

    `confidence` of the interval is a share, say 0.95. Without spread (standard error 0) the interval is a single point.
    """
    shared = sorted(first.keys() & second.keys())
    if not shared:
        return None
    clusters = [key[0] for key in shared]
    count = len(set(clusters))
    estimate = clustered_estimate([second[key] - first[key] for key in shared], clusters)
    difference, error = estimate.value, estimate.standard_error
    if error is None:
        return PairedTest(difference, None, None, None, None, len(shared), count)
    reach = error * float(stdtrit(count - 1, 0.5 + confidence / 2))
    p_value = float(2 * stdtr(count - 1, -abs(difference) / error)) if error else None
    return PairedTest(difference, error, difference - reach, difference + reach, p_value, len(shared), count)


def _mean_over_runs(solved: Mapping[Key, bool]) -> Means:
    runs: dict[tuple[str, ...], list[bool]] = defaultdict(list)
    for (*what, _), success in solved.items():
        runs[tuple(map(str, what))].append(success)
    return {what: sum(successes) / len(successes) for what, successes in runs.items()}


BySeed = Mapping[int, Means]
"""Mean success of each task (or scenario) by training seed."""


def crossed_test(first: BySeed, second: BySeed, confidence: float) -> PairedTest | None:
    """Test the mean of second - first over the seeds and tasks that both have; None when they share nothing.

    The variance is the sum of the variances clustered by seed and by scenario, less the variance clustered by both at
    once, and at least the larger of the two. The t test has min(seeds, scenarios) - 1 degrees of freedom. Without
    spread (a standard error of 0) there is no test, unless all values are 0: no difference. With one seed only the
    scenarios are a sample, as in `paired_test`: the interval then does not cover the results of other seeds.
    """
    values, seeds, scenarios = _paired(first, second)
    if not values.size:
        return None
    mean, pairs = without_rounding(float(values.mean())), len({what for means in second.values() for what in means})
    clusters = [len(set(labels)) for labels in (seeds, scenarios) if len(set(labels)) > 1]
    if not clusters:
        return PairedTest(100 * mean, None, None, None, None, pairs, len(set(scenarios)))
    error = without_rounding(float(np.sqrt(_variance(values - mean, seeds, scenarios))))
    freedom = min(clusters) - 1
    reach = error * float(stdtrit(freedom, 0.5 + confidence / 2))
    p_value = float(2 * stdtr(freedom, -abs(mean) / error)) if error else None if mean else 1.0
    low, high = 100 * (mean - reach), 100 * (mean + reach)
    return PairedTest(100 * mean, 100 * error, low, high, p_value, pairs, len(set(scenarios)))


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


def _paired(first: BySeed, second: BySeed) -> tuple[npt.NDArray[np.float64], list[int], list[str]]:
    """Return the differences of shares, with seed and scenario of each."""
    cells = [
        (second[seed][what] - first[seed][what], seed, what[0])
        for seed in sorted(first.keys() & second.keys())
        for what in sorted(first[seed].keys() & second[seed].keys())
    ]
    return np.asarray([cell[0] for cell in cells]), [cell[1] for cell in cells], [cell[2] for cell in cells]


def _variance(deviations: npt.NDArray[np.float64], seeds: Sequence[int], scenarios: Sequence[str]) -> float:
    """Return the variance (shares squared) of the mean of values with these `deviations` from it."""
    by_seed, by_scenario = _clustered(deviations, seeds), _clustered(deviations, scenarios)
    by_both = _clustered(deviations, list(zip(seeds, scenarios, strict=True)))
    return max(by_seed + by_scenario - by_both, by_seed, by_scenario)


def _clustered(deviations: npt.NDArray[np.float64], clusters: Sequence[object]) -> float:
    """Return the variance as in `tgc_sgc.clustered_estimate`; 0 for a single cluster, which gives no spread."""
    names = {name: number for number, name in enumerate(dict.fromkeys(clusters))}
    if len(names) < 2:
        return 0.0
    sums = np.bincount([names[name] for name in clusters], weights=deviations)
    return float(len(names) / (len(names) - 1) * np.sum(sums**2) / deviations.size**2)
