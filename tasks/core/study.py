"""Studies: finished runs of several methods and seeds, the tests that compare them, their tables and their page."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from tasks.core.config.params import ParamsError, load_params
from tasks.core.config.splits import TEST_SPLITS
from tasks.core.evaluation.differences import METRICS, Means, PairedTest, holm, method_test
from tasks.core.evaluation.scored_rows import outcomes_by_policy
from tasks.core.evaluation.scoring_conditions import scored_differently
from tasks.core.evaluation.tgc_sgc import Outcome
from tasks.core.pages.charts import COLOURS, Band, line_chart
from tasks.core.pages.tables import SPLIT_NAMES, markdown_table, table
from tasks.core.policies.selected_policy import read_selection_and_scores
from tasks.core.records.comparison import NO_FINE_TUNING, Study, StudyRun
from tasks.core.records.documents import dotted_text, read_document
from tasks.core.records.layout import Layout
from tasks.core.records.schemas import BASE_POLICY, OUTCOMES, SCORED_ROLLOUTS, SELECTED_POLICY
from tasks.core.records.scores import Evaluation
from tasks.core.records.tables import read_table
from tasks.core.records.training import AdvantageSummary, Metrics


@dataclass(frozen=True)
class RunLabel:
    """Facts about a run that its working tree does not hold."""

    method: str
    seed: int
    command: str
    trained: bool = True


@dataclass(frozen=True)
class FinishedRun:
    """A run with the tasks that it was scored on."""

    record: StudyRun
    tasks: Mapping[str, str]
    """As in `Study`."""
    knobs: Mapping[str, str]
    """Parameters that may change the meaning of a score, by dotted name."""


def read_finished_run(root: Path, label: RunLabel) -> FinishedRun:
    """Read a finished run. Raises ArtifactError or ParamsError naming the missing or broken file."""
    layout, params = Layout(root), load_params(root / "params.yaml")
    selection, _ = read_selection_and_scores(layout)
    outcomes = _outcomes(layout)
    sampled = [read_document(layout.advantage_summary(key), AdvantageSummary) for key in params.dag.sampled]
    updates = [read_document(layout.metrics(key), Metrics) for key in params.dag.previous]
    evaluated = ((key, read_document(layout.evaluation(key), Evaluation)) for key in params.dag.evaluated)
    record = StudyRun(
        **vars(label),
        selected=selection.iteration,
        rollouts=sum(summary.rollouts for summary in sampled),
        optimizer_steps=sum(update.optimizer_steps for update in updates),
        dev_tgc=tuple((int(key[1:]), evaluation.tgc) for key, evaluation in evaluated),
        solved={
            split: {policy: solved_texts(outcomes[split, policy]) for policy in (BASE_POLICY, SELECTED_POLICY)}
            for split in TEST_SPLITS
        },
    )
    tasks = {str(split): " ".join(_names(outcomes[split, SELECTED_POLICY])) for split in TEST_SPLITS}
    knobs = params.model_dump(mode="json", include={"world", "collection", "evaluation", "scoring"})
    return FinishedRun(record, tasks, dotted_text(knobs))


def solved_texts(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Return for each evaluation run a text of 1 and 0, task by task."""
    solved = {(o.evaluation_run, f"{o.scenario_id}/{o.task_id}"): "01"[o.success] for o in outcomes}
    runs = sorted({run for run, _ in solved})
    return tuple("".join(solved[run, name] for name in _names(outcomes)) for run in runs)


def _names(outcomes: Sequence[Outcome]) -> list[str]:
    return sorted({f"{o.scenario_id}/{o.task_id}" for o in outcomes})


def _outcomes(layout: Layout) -> dict[tuple[str, str], list[Outcome]]:
    tables = (read_table(layout.score_rollouts(split), SCORED_ROLLOUTS) for split in TEST_SPLITS)
    return outcomes_by_policy([row for table in tables for row in table.select(OUTCOMES.names).to_pylist()])


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


HEADS = [f"{SPLIT_NAMES[split]} {metric.upper()}" for split, metric in COLUMNS]


class Section(NamedTuple):
    """A table with its title and a note below the title."""

    title: str
    note: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


def sections(study: Study) -> list[Section]:
    """Return the tables: scores with differences, claims if there are any, and commands."""
    intervals = f"{100 * study.confidence:g}% intervals, each for itself, are of another draw of seeds and of tasks."
    scored = (
        f"Percent, mean ± standard deviation over training seeds; then the difference from {study.against}. "
        f"{intervals} p is after Holm's correction over the methods of a column."
    )
    judged = (
        "As claimed or reversed where p, after Holm's correction over the claims of a column, is below "
        f"{1 - study.confidence:.2g}, else open. {intervals}"
    )
    commands = [(method, f"`{runs[0].command}`") for method, runs in runs_by_method(study).items()]
    found = [
        Section("Scores", scored, ["method", "seeds", *HEADS, "rollouts", "optimizer steps"], list(_score_rows(study))),
        Section("Claims", judged, ["claim", "seeds", *HEADS], list(_claim_rows(study))),
        Section("Commands", "Of each method's first seed.", ["method", "command"], commands),
    ]
    return [section for section in found if section.rows]


def markdown(study: Study) -> str:
    """Return the whole study as Markdown."""
    parts = [f"# {study.name}", *(f"**{note}**" for note in study.notes)]
    for section in sections(study):
        parts += [f"## {section.title}", section.note, markdown_table(section.heads, section.rows)]
    return "\n\n".join(parts) + "\n"


def study_page(study: Study) -> str:
    """Return the study with its learning curves as a page."""
    parts = [
        f"<section><h2>{escape(s.title)}</h2><p>{escape(s.note)}</p>{table(s.heads, s.rows)}</section>"
        for s in sections(study)
    ]
    parts.insert(1, f'<section><h2>Learning curves</h2><div class="charts">{"".join(_charts(study))}</div></section>')
    notes = "".join(f"<p><b>{escape(note)}</b></p>" for note in study.notes)
    style = (files("tasks.core.pages") / "page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(study.name)}: loopline study</title><style>{style}</style></head><body><header>"
        f"<h1>{escape(study.name)}</h1>{notes}</header><main>{''.join(parts)}</main></body></html>\n"
    )


def _score_rows(study: Study) -> Iterator[list[str]]:
    found, methods = differences(study), runs_by_method(study)
    for row, columns in rows(study).items():
        tested = found.get((row, study.against), {})
        cells = [
            _mean(scores(by_seed)) + (f"; {difference_text(tested[column])}" if column in tested else "")
            for column, by_seed in columns.items()
        ]
        runs = [run for run in methods.get(row, ()) if run.trained]
        cost = [f"{fmean(getattr(run, name) for run in runs):,.0f}" if runs else "" for name in _COSTS]
        yield [row, str(len(columns[COLUMNS[0]])), *cells, *cost]


_COSTS = ("rollouts", "optimizer_steps")


def _claim_rows(study: Study) -> Iterator[list[str]]:
    for (above, below), tested in claims(study).items():
        cells = [
            f"{_verdict(tested[column], study.confidence)}: {difference_text(tested[column])}" for column in COLUMNS
        ]
        yield [f"{above} > {below}", str(tested[COLUMNS[0]].seeds), *cells]


def _verdict(tested: Tested, confidence: float) -> str:
    if tested.corrected is None or tested.corrected >= 1 - confidence:
        return "open"
    return "as claimed" if tested.test.difference > 0 else "reversed"


def difference_text(tested: Tested) -> str:
    """Return a difference with its interval and p, or why it has none."""
    test = tested.test
    if test.low is None or test.high is None:
        why = "one seed" if tested.seeds < 2 else "one scenario" if test.scenarios < 2 else "no spread"
        return f"{test.difference:+.1f} ({why}: no interval)"
    p_value = "" if tested.corrected is None else f", p {tested.corrected:.2g}"
    return f"{test.difference:+.1f} ({test.low:+.1f} to {test.high:+.1f}){p_value}"


def _mean(values: Sequence[float]) -> str:
    return f"{fmean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


def _charts(study: Study) -> Iterator[str]:
    """Yield charts of dev TGC, so many that each method has a colour of its own; `study.against` is in all of them."""
    methods = {method: _by_iteration(runs) for method, runs in runs_by_method(study).items()}
    reference = {study.against: methods.pop(study.against)} if study.against in methods else {}
    others, size = list(methods.items()), COLOURS - len(reference)
    for start in range(0, max(len(others), 1), size):
        shown = reference | dict(others[start : start + size])
        means = {name: [(i, fmean(values)) for i, values in curve.items()] for name, curve in shown.items()}
        bands: dict[str, Band] = {
            name: [(i, min(values), max(values)) for i, values in curve.items()] for name, curve in shown.items()
        }
        last = max(iteration for curve in shown.values() for iteration in curve)
        title = "dev TGC: mean, and range over the training seeds (one seed has none)"
        yield line_chart(title, "percent", means, last, bands=bands)


def _by_iteration(runs: Sequence[StudyRun]) -> dict[int, list[float]]:
    values: dict[int, list[float]] = {}
    for run in runs:
        for iteration, tgc in run.dev_tgc:
            values.setdefault(iteration, []).append(tgc)
    return values
