"""Comparing finished runs of several methods and seeds: the document of a study. Pure."""

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
"""The runs of one method, by training seed."""
Policies = Mapping[str, tuple[Method, str]]
"""By row of the table: the runs, and which of their two policies the row is about."""
Pair = tuple[str, str]
"""The method in question, and the method it is compared with."""


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
    """Return the table's rows; first the base policy from which `against` (or else the first method) was trained."""
    methods: dict[str, dict[int, FinishedRun]] = {}
    for run in runs:
        methods.setdefault(run.record.method, {})[run.record.seed] = run
    bases = methods.get(against, next(iter(methods.values())))
    return {NO_FINE_TUNING: (bases, BASE_POLICY)} | {
        name: (by_seed, SELECTED_POLICY) for name, by_seed in methods.items()
    }


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
    """Return Student's interval of the mean over training seeds; None for one seed."""
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
    """Test each pair.

    Holm's correction is made within a split and metric, single-seed pairs apart: see `_seed_notes`.
    """
    for split in TEST_SPLITS:
        for metric in METRICS:
            means = {row: _means(*policies[row], split, metric) for row in policies}
            tests = {pair: crossed_test(means[pair[1]], means[pair[0]], confidence) for pair in pairs}
            tested = {pair: test for pair, test in tests.items() if test is not None}
            seeds = {(first, second): len(means[first].keys() & means[second].keys()) for first, second in tested}
            corrected = _corrected({pair: test.p_value for pair, test in tested.items()}, seeds)
            for pair, test in tested.items():
                labels = {"split": split, "metric": metric, "seeds": seeds[pair]}
                yield pair, {**labels, **vars(test), "corrected_p_value": corrected[pair]}


def _corrected(p_values: Mapping[Pair, float | None], seeds: Mapping[Pair, int]) -> dict[Pair, float | None]:
    corrected: dict[Pair, float | None] = {}
    for pairs in (
        [tested for tested in p_values if seeds[tested] == 1],
        [tested for tested in p_values if seeds[tested] > 1],
    ):
        corrected |= zip(pairs, holm([p_values[pair] for pair in pairs]), strict=True)
    return corrected


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


def _seed_notes(runs: Sequence[FinishedRun], against: str) -> Iterator[str]:
    """Yield a note on methods compared on a single seed: there only scenarios are sampled."""
    seeds: dict[str, set[int]] = {}
    for run in runs:
        seeds.setdefault(run.record.method, set()).add(run.record.seed)
    shared = {
        method: their_seeds & seeds.get(against, set()) for method, their_seeds in seeds.items() if method != against
    }
    if single := [method for method, their_seeds in shared.items() if len(their_seeds) == 1]:
        yield (
            f"One seed of {', '.join(single)} is compared: the interval is over scenarios alone, too narrow to rank "
            "the method, and p is corrected among these."
        )


def _score_notes(runs: Sequence[FinishedRun]) -> Iterator[str]:
    """Yield notes if scores are not comparable: from other worlds, other conditions or other tasks."""
    if names := scored_differently({run.record.experiment: run.knobs for run in runs}, TEST_SPLITS):
        yield f"The runs were scored differently, and their scores may not compare: {', '.join(names)}."
    tasks = {run.record.experiment: {split: score.tasks for split, score in run.record.scores.items()} for run in runs}
    if len({str(counts) for counts in tasks.values()}) > 1:
        yield f"The runs were scored on different numbers of tasks: {tasks}."
