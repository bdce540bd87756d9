"""Finished runs of several methods and seeds -> the document of a study. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any

from scipy.special import stdtrit

from tasks.core.config.splits import TEST_SPLITS
from tasks.core.evaluation.differences import METRICS, BySeed, crossed_test, holm
from tasks.core.evaluation.scoring_conditions import scored_differently
from tasks.core.records.schemas import BASE_POLICY, SELECTED_POLICY
from tasks.core.records.study import NO_FINE_TUNING, MethodDifference, MethodOrdering, MethodScore, Study
from tasks.core.study.finished_run import FinishedRun

Method = Mapping[int, FinishedRun]
"""Runs of one method by training seed."""
Policies = Mapping[str, tuple[Method, str]]
"""By row of the table: the runs, and which of their two policies is meant."""
Pair = tuple[str, str]
"""The method that is meant, and the one that it is compared with."""


def compare(
    name: str,
    against: str,
    runs: Sequence[FinishedRun],
    confidence: float,
    commit: str,
    notes: Sequence[str] = (),
    orderings: Sequence[Sequence[str]] = (),
) -> Study:
    """The study of `runs`; every method is compared with the method `against`, where that has runs.

    `orderings`: claims, each the names of methods from the best one down; neighbours that both have runs are compared.
    """
    policies = _policies(runs, against)
    return Study(
        name=name,
        against=against,
        confidence=confidence,
        git_commit=commit,
        runs=tuple(run.record for run in runs),
        scores=tuple(_scores(policies, confidence)),
        differences=tuple(_differences(policies, against, confidence)),
        orderings=tuple(_orderings(policies, orderings, confidence)),
        notes=(
            *notes,
            *_budget_notes(runs),
            *_training_budget_notes(runs),
            *_seed_notes(runs, against),
            *_score_notes(runs),
        ),
    )


def _policies(runs: Sequence[FinishedRun], against: str) -> Policies:
    """The row of the base policy first: the one that the runs of `against` (or else of the first method) began with."""
    methods: dict[str, dict[int, FinishedRun]] = {}
    for run in runs:
        methods.setdefault(run.record.method, {})[run.record.seed] = run
    bases = methods.get(against, next(iter(methods.values())))
    return {NO_FINE_TUNING: (bases, BASE_POLICY)} | {name: (found, SELECTED_POLICY) for name, found in methods.items()}


def _scores(policies: Policies, confidence: float) -> Iterator[MethodScore]:
    for row, (method, policy) in policies.items():
        for split in TEST_SPLITS:
            for metric in METRICS:
                values = [_score(run, policy, split, metric) for run in method.values()]
                yield _over_seeds(row, split, metric, values, confidence)


def _score(run: FinishedRun, policy: str, split: str, metric: str) -> float:
    scores = run.record.base_scores if policy == BASE_POLICY else run.record.scores
    return float(getattr(scores[split], metric))


def interval_over_seeds(values: Sequence[float], confidence: float) -> tuple[float, float] | None:
    """Student's interval of the mean over training seeds; None for one seed."""
    count = len(values)
    if count < 2:
        return None
    mean, reach = fmean(values), stdev(values) / count**0.5 * float(stdtrit(count - 1, 0.5 + confidence / 2))
    return mean - reach, mean + reach


def _over_seeds(row: str, split: str, metric: str, values: Sequence[float], confidence: float) -> MethodScore:
    mean, spread = fmean(values), stdev(values) if len(values) > 1 else None
    low, high = interval_over_seeds(values, confidence) or (None, None)
    return MethodScore(
        method=row,
        split=split,
        metric=metric,  # type: ignore[arg-type]
        mean=mean,
        spread=spread,
        low=low,
        high=high,
        seeds=len(values),
    )


def _differences(policies: Policies, against: str, confidence: float) -> Iterator[MethodDifference]:
    pairs = [(row, against) for row in policies if row != against] if against in policies else []
    for (row, _), tested in _tested(policies, pairs, confidence):
        yield MethodDifference(method=row, **tested)


def _orderings(policies: Policies, orderings: Sequence[Sequence[str]], confidence: float) -> Iterator[MethodOrdering]:
    shown = [[row for row in ordering if row in policies] for ordering in orderings]
    pairs = list(dict.fromkeys(pair for ordering in shown for pair in pairwise(ordering)))
    for (above, below), tested in _tested(policies, pairs, confidence):
        yield MethodOrdering(method=above, below=below, **tested)


def _tested(policies: Policies, pairs: Sequence[Pair], confidence: float) -> Iterator[tuple[Pair, dict[str, Any]]]:
    """Holm's correction is made over a split's and metric's pairs, those with one seed apart: see `_seed_notes`."""
    for split in TEST_SPLITS:
        for metric in METRICS:
            means = {row: _means(*policies[row], split, metric) for row in policies}
            tests = {pair: crossed_test(means[pair[1]], means[pair[0]], confidence) for pair in pairs}
            found = {pair: test for pair, test in tests.items() if test is not None}
            seeds = {(first, second): len(means[first].keys() & means[second].keys()) for first, second in found}
            corrected = _corrected({pair: test.p_value for pair, test in found.items()}, seeds)
            for pair, test in found.items():
                place = {"split": split, "metric": metric, "seeds": seeds[pair]}
                yield pair, {**place, **vars(test), "corrected_p_value": corrected[pair]}


def _corrected(p_values: Mapping[Pair, float | None], seeds: Mapping[Pair, int]) -> dict[Pair, float | None]:
    found: dict[Pair, float | None] = {}
    for pairs in ([one for one in p_values if seeds[one] == 1], [one for one in p_values if seeds[one] > 1]):
        found |= zip(pairs, holm([p_values[pair] for pair in pairs]), strict=True)
    return found


def _means(method: Method, policy: str, split: str, metric: str) -> BySeed:
    return {seed: METRICS[metric](run.outcomes[split, policy]) for seed, run in method.items()}


def _budget_notes(runs: Sequence[FinishedRun]) -> Iterator[str]:
    """One note where the runs played different numbers of training rollouts."""
    budgets: dict[str, dict[int, None]] = {}
    for run in runs:
        budgets.setdefault(run.record.method, {})[run.record.rollouts] = None
    if len({rollouts for found in budgets.values() for rollouts in found}) > 1:
        told = ", ".join(f"{method} {_range(found)}" for method, found in budgets.items())
        yield f"The methods did not play equal numbers of training rollouts: {told}."


def _training_budget_notes(runs: Sequence[FinishedRun]) -> Iterator[str]:
    """Each training budget at which runs were scored, too: its limits, and TGC and SGC as means over the seeds."""
    found: dict[tuple[str, str], dict[str, list[FinishedRun]]] = {}
    for run in runs:
        for budget in dict.fromkeys(
            (b.limits.in_words, b.test_limits.in_words) for b in run.training_budget.values() if b.played_again
        ):
            found.setdefault(budget, {}).setdefault(run.record.method, []).append(run)
    for (limits, test_limits), methods in found.items():
        told = "; ".join(f"{method} {_at_training_budget(scored)}" for method, scored in methods.items())
        yield f"The scores are at the test budget ({test_limits}). TGC / SGC at the training budget ({limits}): {told}."


def _at_training_budget(runs: Sequence[FinishedRun]) -> str:
    figures = {
        split: [fmean(getattr(run.training_budget[split], metric) for run in runs) for metric in METRICS]
        for split in TEST_SPLITS
        if all(split in run.training_budget for run in runs)
    }
    return ", ".join(f"{split} {' / '.join(f'{mean:.1f}' for mean in means)}" for split, means in figures.items())


def _range(counts: Collection[int]) -> str:
    """Least to most among one method's seeds."""
    least, most = min(counts), max(counts)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _seed_notes(runs: Sequence[FinishedRun], against: str) -> Iterator[str]:
    """One note on methods of which a single seed is compared: scenarios alone are then a sample."""
    seeds: dict[str, set[int]] = {}
    for run in runs:
        seeds.setdefault(run.record.method, set()).add(run.record.seed)
    shared = {method: found & seeds.get(against, set()) for method, found in seeds.items() if method != against}
    if single := [method for method, found in shared.items() if len(found) == 1]:
        yield (
            f"One seed of {', '.join(single)} is compared: the interval is over scenarios alone, too narrow to rank "
            "the method, and p is corrected among these."
        )


def _score_notes(runs: Sequence[FinishedRun]) -> Iterator[str]:
    """Notes where scores were not taken alike: of other worlds, under other conditions, on other tasks."""
    if names := scored_differently({run.record.experiment: run.knobs for run in runs}, TEST_SPLITS):
        yield f"The runs were scored differently, and their scores may not compare: {', '.join(names)}."
    tasks = {run.record.experiment: {split: score.tasks for split, score in run.record.scores.items()} for run in runs}
    if len({str(counts) for counts in tasks.values()}) > 1:
        yield f"The runs were scored on different numbers of tasks: {tasks}."
