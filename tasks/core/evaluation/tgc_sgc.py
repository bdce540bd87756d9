"""TGC and SGC with standard errors clustered by scenario. Pure: outcomes in, figures in percent out.

TGC (task goal completion) is the share of tasks whose every unit test passes; SGC (scenario goal completion) the share
of scenarios all of whose tasks do, within one evaluation run (AppWorld, section 5). Both are means over the evaluation
runs. The tasks of one scenario share their template, and the runs of one task share everything except the seed: none of
them are independent. So the unit of sampling is the scenario, in one function that every figure goes through.

pass^k and best@k are success in all and in one of k runs of a task, estimated from its n >= k runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
import numpy.typing as npt

from tasks.core.records.scores import RunsScore, RunsScores

Key = tuple[str | int, ...]
"""A unit on which two policies are compared: the scenario first, the evaluation run last."""
ROUNDING = 1e-12
"""A smaller share is a rounding error: means over three runs are thirds, whose differences do not cancel to 0."""


@dataclass(frozen=True)
class Outcome:
    """One task played once."""

    task_id: str
    scenario_id: str
    difficulty: int
    evaluation_run: int
    success: bool


@dataclass(frozen=True)
class Estimate:
    """A mean and its standard error, both in percent."""

    value: float
    standard_error: float | None
    """None when there is only one scenario, which gives no spread between scenarios."""


def clustered_estimate(values: npt.ArrayLike, clusters: Sequence[str]) -> Estimate:
    """Return the mean of `values` (shares; shape [n]) and its clustered standard error, in percent.

    se = sqrt(C / (C - 1) * sum over clusters c of (sum over i in c of (x_i - mean))^2) / n, for C clusters: Miller,
    "Adding Error Bars to Evals" (arXiv 2411.00640, section 2.2), with the finite-cluster correction. With one value in
    each cluster it is the ordinary standard error of a mean. It is 0 when all cluster sums agree with the mean (say,
    every task solved): the data then show no spread, which does not mean that there is none.

    Raises ValueError when there are no values.
    """
    scores = np.asarray(values, dtype=np.float64)
    if not scores.size:
        raise ValueError("no task was played, so there is nothing to score")
    mean = without_rounding(float(scores.mean()))
    _, cluster = np.unique(np.asarray(clusters), return_inverse=True)
    deviations = np.bincount(cluster, weights=scores - mean)
    count = deviations.size
    if count < 2:
        return Estimate(100 * mean, None)
    spread = without_rounding(float(np.sqrt(count / (count - 1) * np.sum(deviations**2))))
    return Estimate(100 * mean, 100 * spread / scores.size)


def without_rounding(share: float) -> float:
    """Return 0 for a share within `ROUNDING` of 0, and any other share as it is."""
    return share if abs(share) > ROUNDING else 0.0


def tgc(outcomes: Sequence[Outcome]) -> Estimate:
    """Return task goal completion over all tasks and evaluation runs."""
    return clustered_estimate([o.success for o in outcomes], [o.scenario_id for o in outcomes])


def sgc(outcomes: Sequence[Outcome]) -> Estimate:
    """Return scenario goal completion: one value for each scenario in each evaluation run."""
    solved = solved_scenarios(outcomes)
    return clustered_estimate(list(solved.values()), [str(key[0]) for key in solved])


def tgc_gain(outcomes: Sequence[Outcome], base: Sequence[Outcome]) -> Estimate:
    """Return TGC of `outcomes` minus that of `base`, in percentage points, with the paired difference's standard error.

    Task and evaluation run are paired, so what is hard for both policies cancels out.

    Raises ValueError when the two have not played the same tasks in the same runs.
    """
    return _paired(solved_tasks(outcomes), solved_tasks(base))


def sgc_gain(outcomes: Sequence[Outcome], base: Sequence[Outcome]) -> Estimate:
    """Return the gain of `tgc_gain`, in SGC."""
    return _paired(solved_scenarios(outcomes), solved_scenarios(base))


def by_difficulty(outcomes: Sequence[Outcome]) -> dict[int, list[Outcome]]:
    """Return the outcomes of each difficulty level, levels ascending."""
    levels = sorted({outcome.difficulty for outcome in outcomes})
    return {level: [outcome for outcome in outcomes if outcome.difficulty == level] for level in levels}


def require_complete(outcomes: Sequence[Outcome], runs: int) -> None:
    """Raise ValueError unless every task was played exactly once in each of the runs 0 .. runs - 1.

    A missing rollout would leave its task out of the mean, and could turn a failed scenario into a solved one.
    """
    played = sorted((outcome.task_id, outcome.evaluation_run) for outcome in outcomes)
    tasks = sorted({outcome.task_id for outcome in outcomes})
    expected = [(task, run) for task in tasks for run in range(runs)]
    if played != expected:
        wrong = sorted(set(played) ^ set(expected)) or [pair for pair in set(played) if played.count(pair) > 1]
        raise ValueError(f"task {wrong[0][0]} was not played exactly once in evaluation run {wrong[0][1]}")


def solved_tasks(outcomes: Sequence[Outcome]) -> dict[Key, bool]:
    """Return whether a task succeeded, by (scenario, task, evaluation run)."""
    return {(o.scenario_id, o.task_id, o.evaluation_run): o.success for o in outcomes}


def solved_scenarios(outcomes: Sequence[Outcome]) -> dict[Key, bool]:
    """Return whether every task of a scenario succeeded, by (scenario, evaluation run)."""
    solved: dict[Key, bool] = {}
    for outcome in outcomes:
        key = (outcome.scenario_id, outcome.evaluation_run)
        solved[key] = solved.get(key, True) and outcome.success
    return solved


def _paired(ours: Mapping[Key, bool], theirs: Mapping[Key, bool]) -> Estimate:
    if ours.keys() != theirs.keys():
        raise ValueError("the two policies have not played the same tasks in the same evaluation runs")
    differences = [float(ours[key]) - float(theirs[key]) for key in ours]
    return clustered_estimate(differences, [str(key[0]) for key in ours])


def pass_hat_k(successes: int, runs: int, k: int) -> float:
    """Return C(c, k) / C(n, k), the unbiased probability that k runs all succeed (tau-bench, arXiv 2406.12045)."""
    return comb(successes, k) / comb(runs, k)


def best_at_k(successes: int, runs: int, k: int) -> float:
    """Return 1 - C(n - c, k) / C(n, k), that one of k runs succeeds: pass@k of Codex (arXiv 2107.03374)."""
    return 1 - comb(runs - successes, k) / comb(runs, k)


def runs_scores(played: Sequence[Outcome]) -> dict[str, RunsScore]:
    """Return both for k = 1 .. n, by k, means over the tasks: with k = 1 they are TGC. Each task has n outcomes."""
    verdicts: dict[tuple[str, str], list[bool]] = {}
    for outcome in played:
        verdicts.setdefault((outcome.scenario_id, outcome.task_id), []).append(outcome.success)
    scenarios, counts = [scenario for scenario, _ in verdicts], [(sum(v), len(v)) for v in verdicts.values()]

    def score(k: int) -> RunsScore:
        every, best = (
            clustered_estimate([of(c, n, k) for c, n in counts], scenarios) for of in (pass_hat_k, best_at_k)
        )
        return _document(every, best)

    return {str(k): score(k) for k in range(1, min((n for _, n in counts), default=0) + 1)}


def paired_runs_scores(selected: Sequence[Outcome], base: Sequence[Outcome]) -> dict[str, RunsScores]:
    """Return `runs_scores` of the selected policy and of the base."""
    theirs = runs_scores(base)
    return {
        k: RunsScores(**score.model_dump(), base_pass_hat=theirs[k].pass_hat, base_best_of=theirs[k].best_of)
        for k, score in runs_scores(selected).items()
    }


def _document(every: Estimate, best: Estimate) -> RunsScore:
    return RunsScore(
        pass_hat=every.value, pass_hat_se=every.standard_error, best_of=best.value, best_of_se=best.standard_error
    )
