"""Scores of one split by difficulty, and paired tests of two policies at each. Pure."""

from collections.abc import Iterator, Sequence
from itertools import product

from tasks.core.evaluation.differences import METRICS, PairedTest, paired_test
from tasks.core.evaluation.tgc_sgc import Outcome, by_difficulty, runs_scores, sgc, tgc
from tasks.core.records.comparison import ALL_LEVELS, LevelScore, SplitScores
from tasks.core.records.scores import Behaviour, MetricScore

Levels = dict[str, list[Outcome]]


def levels(outcomes: Sequence[Outcome]) -> Levels:
    """Return all outcomes, and the outcomes by difficulty."""
    return {ALL_LEVELS: list(outcomes), **{str(level): part for level, part in by_difficulty(outcomes).items()}}


def split_scores(outcomes: Sequence[Outcome], behaviour: Behaviour | None, own: MetricScore | None) -> SplitScores:
    """Return all figures of one policy on one split."""
    return SplitScores(
        rollouts_per_task=len({outcome.evaluation_run for outcome in outcomes}),
        levels={level: _level_score(part) for level, part in levels(outcomes).items()},
        per_k=runs_scores(outcomes),
        behaviour=behaviour,
        own=None if own is None else MetricScore(name=own.name, value=own.value, value_se=own.value_se),
    )


def paired_tests(
    first: Sequence[Outcome], second: Sequence[Outcome], confidence: float
) -> Iterator[tuple[str, str, PairedTest]]:
    """Yield level, metric and test of second minus first, at every level that both have played."""
    ours, theirs = levels(first), levels(second)
    for level, metric in product((level for level in ours if level in theirs), METRICS):
        test = paired_test(METRICS[metric](ours[level]), METRICS[metric](theirs[level]), confidence)
        if test is not None:
            yield level, metric, test


def _level_score(outcomes: Sequence[Outcome]) -> LevelScore:
    tasks, scenarios = tgc(outcomes), sgc(outcomes)
    return LevelScore(
        tasks=len({outcome.task_id for outcome in outcomes}),
        scenarios=len({outcome.scenario_id for outcome in outcomes}),
        tgc=tasks.value,
        tgc_se=tasks.standard_error,
        sgc=scenarios.value,
        sgc_se=scenarios.standard_error,
    )
