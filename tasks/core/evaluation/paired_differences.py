"""Two policies on the same tasks: the paired difference, clustered by scenario. Pure: outcomes in, tests out.

What is paired is the task (SGC: the scenario), with its mean over the evaluation runs, so that two policies can be
compared that were scored with different seeds or numbers of runs. The tasks of one scenario share their template, so
the scenario is the unit of sampling, as everywhere (see `tgc_sgc`).
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from scipy.special import stdtr, stdtrit

from tasks.core.evaluation.tgc_sgc import Key, Outcome, clustered_estimate, solved_scenarios, solved_tasks

Means = Mapping[tuple[str, ...], float]
"""Mean success (a share) over the evaluation runs; the scenario comes first in the key."""


@dataclass(frozen=True)
class PairedTest:
    """Second minus first policy, in percentage points; t test with (scenarios - 1) degrees of freedom."""

    difference: float
    standard_error: float | None
    """None from one scenario; interval and p-value are then None too."""
    low: float | None
    high: float | None
    p_value: float | None
    """Two-sided, for the null hypothesis that there is no difference; None where the data show no spread."""
    pairs: int
    """Tasks (SGC: scenarios) that both have played."""
    scenarios: int


def task_means(outcomes: Sequence[Outcome]) -> Means:
    """Mean success of each task."""
    return _mean_over_runs(solved_tasks(outcomes))


def scenario_means(outcomes: Sequence[Outcome]) -> Means:
    """Share of the evaluation runs in which all tasks of a scenario succeeded."""
    return _mean_over_runs(solved_scenarios(outcomes))


METRICS: Mapping[str, Callable[[Sequence[Outcome]], Means]] = {"tgc": task_means, "sgc": scenario_means}


def paired_test(first: Means, second: Means, confidence: float) -> PairedTest | None:
    """Test the mean of second - first over what both have played; None when they share nothing.

    `confidence` of the interval is a share, say 0.95. Without spread (standard error 0) the interval is one point.
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
