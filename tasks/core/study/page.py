"""A study as Markdown, and as one HTML page in the report's style, which loads nothing. Pure."""

from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from statistics import fmean, stdev
from typing import NamedTuple

from tasks.core.pages.charts import COLOURS, Band, line_chart
from tasks.core.pages.tables import SPLIT_NAMES, markdown_table, table
from tasks.core.records.comparison import Study, StudyRun
from tasks.core.study.comparing import COLUMNS, Tested, claims, differences, rows, runs_by_method, scores

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
