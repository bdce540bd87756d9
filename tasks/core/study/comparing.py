"""Comparing finished runs of several methods and seeds: the document of a study. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any

from tasks.core.config.splits import TEST_SPLITS
from tasks.core.evaluation.differences import METRICS, holm
from tasks.core.evaluation.method_differences import BySeed, method_test
from tasks.core.evaluation.scoring_conditions import scored_differently
from tasks.core.records.schemas import BASE_POLICY, SELECTED_POLICY
from tasks.core.records.study import NO_FINE_TUNING, MethodDifference, MethodOrdering, MethodScore, Study
from tasks.core.study.finished_run import FinishedRun

Method = Mapping[int, FinishedRun]
"""The runs of one method, by training seed."""
Policies = Mapping[str, tuple[Method, str]]
"""By row of the table: the runs, and which of their two policies the row is about."""
Pair = tuple[str, str]
"""The method in question, and the method it is compared with."""
ONE_SEED = "One seed ranks nothing"


def compare(
    name: str,
    against: str,
    runs: Sequence[FinishedRun],
    confidence: float,
    commit: str,
    notes: Sequence[str] = (),
    orderings: Sequence[Sequence[str]] = (),
) -> Study:
    """Return the study of `runs`, with every method compared to the method `against` if that has runs.

    `orderings` are claims: each lists methods from best to worst, and neighbours that both have runs are compared.
    """
    policies = _policies(runs, against)
    differences = tuple(_differences(policies, against, confidence))
    ordered = tuple(_orderings(policies, orderings, confidence))
    return Study(
        name=name,
        against=against,
        confidence=confidence,
        git_commit=commit,
        runs=tuple(run.record for run in runs),
        scores=tuple(_scores(policies)),
        differences=differences,
        orderings=ordered,
        notes=(
            *notes,
            *_budget_notes(runs),
            *_training_budget_notes(runs),
            *_seed_notes((*differences, *ordered), against),
            *_score_notes(runs),
        ),
    )


def _policies(runs: Sequence[FinishedRun], against: str) -> Policies:
    """Return the table's rows; first the base policy from which `against` (or else the first method) was trained."""
    methods: dict[str, dict[int, FinishedRun]] = {}
    for run in runs:
        methods.setdefault(run.record.method, {})[run.record.seed] = run
    bases = methods.get(against, next(iter(methods.values())))
    return {NO_FINE_TUNING: (bases, BASE_POLICY)} | {
        name: (by_seed, SELECTED_POLICY) for name, by_seed in methods.items()
    }


def _scores(policies: Policies) -> Iterator[MethodScore]:
    for row, (method, policy) in policies.items():
        for split in TEST_SPLITS:
            for metric in METRICS:
                values = [_score(run, policy, split, metric) for run in method.values()]
                yield _over_seeds(row, split, metric, values)


def _score(run: FinishedRun, policy: str, split: str, metric: str) -> float:
    scores = run.record.base_scores if policy == BASE_POLICY else run.record.scores
    return float(getattr(scores[split], metric))


def _over_seeds(row: str, split: str, metric: str, values: Sequence[float]) -> MethodScore:
    return MethodScore(
        method=row,
        split=split,
        metric=metric,  # type: ignore[arg-type]
        mean=fmean(values),
        spread=stdev(values) if len(values) > 1 else None,
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
    """Test each pair. Holm's correction is over the pairs of a split and metric that are tested at all."""
    for split in TEST_SPLITS:
        for metric in METRICS:
            means = {row: _means(*policies[row], split, metric) for row in policies}
            tests = {pair: method_test(means[pair[1]], means[pair[0]], confidence) for pair in pairs}
            tested = {pair: test for pair, test in tests.items() if test is not None}
            corrected = holm([test.p_value for test in tested.values()])
            for (pair, test), p_value in zip(tested.items(), corrected, strict=True):
                seeds = len(means[pair[0]].keys() & means[pair[1]].keys())
                labels = {"split": split, "metric": metric, "seeds": seeds}
                yield pair, {**labels, **vars(test), "corrected_p_value": p_value}


def _means(method: Method, policy: str, split: str, metric: str) -> BySeed:
    return {seed: METRICS[metric](run.outcomes[split, policy]) for seed, run in method.items()}


def _budget_notes(runs: Sequence[FinishedRun]) -> Iterator[str]:
    """Yield a note if the runs played different numbers of training rollouts."""
    budgets: dict[str, dict[int, None]] = {}
    for run in runs:
        budgets.setdefault(run.record.method, {})[run.record.rollouts] = None
    if len({rollouts for counts in budgets.values() for rollouts in counts}) > 1:
        ranges = ", ".join(f"{method} {_range(counts)}" for method, counts in budgets.items())
        yield f"The methods did not play equal numbers of training rollouts: {ranges}."


def _training_budget_notes(runs: Sequence[FinishedRun]) -> Iterator[str]:
    """Yield a note per training budget that was also scored: its limits, and mean TGC and SGC over the seeds."""
    by_budget: dict[tuple[str, str], dict[str, list[FinishedRun]]] = {}
    for run in runs:
        for budget in dict.fromkeys(
            (b.limits.in_words, b.test_limits.in_words) for b in run.training_budget.values() if b.played_again
        ):
            by_budget.setdefault(budget, {}).setdefault(run.record.method, []).append(run)
    for (limits, test_limits), methods in by_budget.items():
        figures = "; ".join(f"{method} {_at_training_budget(scored)}" for method, scored in methods.items())
        yield (
            f"The scores are at the test budget ({test_limits}). "
            f"TGC / SGC at the training budget ({limits}): {figures}."
        )


def _at_training_budget(runs: Sequence[FinishedRun]) -> str:
    figures = {
        split: [fmean(getattr(run.training_budget[split], metric) for run in runs) for metric in METRICS]
        for split in TEST_SPLITS
        if all(split in run.training_budget for run in runs)
    }
    return ", ".join(f"{split} {' / '.join(f'{mean:.1f}' for mean in means)}" for split, means in figures.items())


def _range(counts: Collection[int]) -> str:
    """Return the smallest to the largest count among one method's seeds."""
    least, most = min(counts), max(counts)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _seed_notes(tested: Iterable[MethodDifference], against: str) -> Iterator[str]:
    """Yield a note on the pairs that share a single seed, be they compared with `against` or in a claim."""
    names = dict.fromkeys(
        f"{one.method} > {one.below}" if isinstance(one, MethodOrdering) else f"{one.method} and {against}"
        for one in tested
        if one.seeds == 1
    )
    if names:
        yield f"{ONE_SEED}: there is no interval and no p for {', '.join(names)}, which share one."


def _score_notes(runs: Sequence[FinishedRun]) -> Iterator[str]:
    """Yield notes if scores are not comparable: from other worlds, other conditions or other tasks."""
    if names := scored_differently({run.record.experiment: run.knobs for run in runs}, TEST_SPLITS):
        yield f"The runs were scored differently, and their scores may not compare: {', '.join(names)}."
    tasks = {run.record.experiment: {split: score.tasks for split, score in run.record.scores.items()} for run in runs}
    if len({str(counts) for counts in tasks.values()}) > 1:
        yield f"The runs were scored on different numbers of tasks: {tasks}."
