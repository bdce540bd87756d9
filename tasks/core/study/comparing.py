"""Comparing finished runs of several methods and seeds: a study, and the tests that its tables show. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from tasks.core.config.params import ParamsError
from tasks.core.config.splits import TEST_SPLITS
from tasks.core.evaluation.differences import METRICS, Means, PairedTest, holm, method_test
from tasks.core.evaluation.scoring_conditions import scored_differently
from tasks.core.evaluation.tgc_sgc import Outcome
from tasks.core.records.comparison import NO_FINE_TUNING, Study, StudyRun
from tasks.core.records.schemas import BASE_POLICY, SELECTED_POLICY
from tasks.core.study.finished_run import FinishedRun

Column = tuple[str, str]
"""Test split and metric."""
COLUMNS: list[Column] = [(split, metric) for split in TEST_SPLITS for metric in METRICS]
Pair = tuple[str, str]
"""The method in question, and the method that is subtracted."""


@dataclass(frozen=True)
class Tested:
    """A difference of two methods on one split and metric."""

    test: PairedTest
    corrected: float | None
    """p after Holm's correction over the pairs of the column that have a test."""
    seeds: int
    """Training seeds that both have."""


def study_of(
    runs: Sequence[FinishedRun],
    name: str,
    against: str,
    orderings: Sequence[Sequence[str]],
    confidence: float,
    commit: str,
    notes: Sequence[str] = (),
) -> Study:
    """Return the study of `runs`. Raises ParamsError where they were scored on different tasks."""
    first, labels = runs[0], [f"{run.record.method} with seed {run.record.seed}" for run in runs]
    for label, run in zip(labels, runs, strict=True):
        if run.tasks != first.tasks:
            raise ParamsError(f"{label} was scored on other tasks than {labels[0]}: a study compares on the same ones")
    differently = scored_differently(dict(zip(labels, (run.knobs for run in runs), strict=True)), TEST_SPLITS)
    warning = f"The runs were scored differently, and their scores may not compare: {', '.join(differently)}."
    return Study(
        name=name,
        against=against,
        confidence=confidence,
        orderings=tuple(map(tuple, orderings)),
        git_commit=commit,
        tasks=dict(first.tasks),
        runs=tuple(run.record for run in runs),
        notes=(*notes, *([warning] if differently else [])),
    )


def runs_by_method(study: Study) -> dict[str, list[StudyRun]]:
    """Return the runs of each method, in order."""
    runs: dict[str, list[StudyRun]] = {}
    for run in study.runs:
        runs.setdefault(run.method, []).append(run)
    return runs


def rows(study: Study) -> dict[str, dict[Column, dict[int, Means]]]:
    """Return the mean success of each task by row, column and seed.

    The first row is the base policy from which `study.against` (or else the first method) was trained.
    """
    methods = runs_by_method(study)
    bases = methods.get(study.against, next(iter(methods.values())))
    shown = {NO_FINE_TUNING: [(run, BASE_POLICY) for run in bases]} | {
        method: [(run, SELECTED_POLICY if run.trained else BASE_POLICY) for run in runs]
        for method, runs in methods.items()
    }
    return {
        row: {
            (split, metric): {
                run.seed: METRICS[metric](list(outcomes(study, run, split, policy))) for run, policy in of
            }
            for split, metric in COLUMNS
        }
        for row, of in shown.items()
    }


def outcomes(study: Study, run: StudyRun, split: str, policy: str) -> Iterator[Outcome]:
    """Yield the outcomes of one policy of a run."""
    names = [name.split("/") for name in study.tasks[split].split(" ")]
    for number, text in enumerate(run.solved[split][policy]):
        for (scenario, task), solved in zip(names, text, strict=True):
            yield Outcome(task, scenario, 0, number, solved == "1")


def scores(by_seed: Mapping[int, Means]) -> list[float]:
    """Return the score of each seed, in percent."""
    return [100 * fmean(means.values()) for means in by_seed.values()]


def differences(study: Study) -> dict[Pair, dict[Column, Tested]]:
    """Return each row minus `study.against`; nothing where that has no run."""
    found = rows(study)
    pairs = [(row, study.against) for row in found if row != study.against] if study.against in found else []
    return _tested(found, pairs, study.confidence)


def claims(study: Study) -> dict[Pair, dict[Column, Tested]]:
    """Return the neighbours of each ordering that both have runs, the first minus the second."""
    found = rows(study)
    shown = [[row for row in ordering if row in found] for ordering in study.orderings]
    return _tested(
        found, list(dict.fromkeys(pair for ordering in shown for pair in pairwise(ordering))), study.confidence
    )


def _tested(
    means: Mapping[str, Mapping[Column, Mapping[int, Means]]], pairs: Sequence[Pair], confidence: float
) -> dict[Pair, dict[Column, Tested]]:
    found: dict[Pair, dict[Column, Tested]] = {pair: {} for pair in pairs}
    for column in COLUMNS:
        tests = {
            (row, below): method_test(means[below][column], means[row][column], confidence) for row, below in pairs
        }
        shared = {pair: test for pair, test in tests.items() if test is not None}
        corrected = holm([test.p_value for test in shared.values()])
        for ((row, below), test), p_value in zip(shared.items(), corrected, strict=True):
            seeds = len(means[row][column].keys() & means[below][column].keys())
            found[row, below][column] = Tested(test, p_value, seeds)
    return {pair: tested for pair, tested in found.items() if tested}
