"""A study as one HTML page in the report's style, which loads nothing, and as Markdown with the same tables. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from statistics import fmean, stdev

from tasks.core.pages.charts import Band, line_chart
from tasks.core.pages.tables import markdown_table, table
from tasks.core.records.study import Study, StudyRun
from tasks.core.study.tables import (
    COST_HEADS,
    COST_TITLE,
    DIFFERENCE_HEADS,
    HEADS,
    NO_WARNING,
    NONE,
    ORDERINGS_TITLE,
    PAPER_TITLE,
    SCORES_TITLE,
    WARNING_HEADS,
    WARNING_TITLE,
    Row,
    command_rows,
    cost_rows,
    difference_rows,
    differences_note,
    differences_title,
    mean_text,
    ordering_rows,
    orderings_note,
    paper_rows,
    runs_by_method,
    score_rows,
    warning_rows,
)


def drift_rows(study: Study) -> list[Row]:
    """Return the rows: method, seeds, best, last, fall from best to last, fall minus that of `study.against`, drift.

    The best of several evaluations is partly due to chance, the more so the more there are: compare falls only between
    methods that were evaluated equally often. The drift is the mean of the last third of a run's evaluations minus that
    of the middle third (neither includes the base); no such choice affects it.
    """
    methods = {method: _evaluated(runs) for method, runs in runs_by_method(study).items()}
    reference = _falls(methods.get(study.against, {}))
    rows: list[Row] = []
    for method, seeds in methods.items():
        falls = _falls(seeds)
        more = [] if method == study.against else [falls[seed] - reference[seed] for seed in falls if seed in reference]
        best, last = fmean(map(max, seeds.values())), fmean(dev[-1] for dev in seeds.values())
        drifts = [_drift(dev[1:]) for dev in seeds.values() if len(dev) > 3]
        fall = _mean(list(falls.values()))
        signed = (_mean(values, "+") for values in (more, drifts))
        rows.append((method, str(len(seeds)), f"{best:.1f}", f"{last:.1f}", fall, *signed))
    return rows


DRIFT_TITLE = "Drift: dev TGC at the best and at the last evaluation"
DRIFT_NOTE = "Means ± standard deviation over training seeds, on the same dev tasks: no test."


def drift_heads(study: Study) -> list[str]:
    """Return the columns of `drift_rows` after the method."""
    return ["seeds", "best", "last", "fall", f"minus {study.against}'s fall", "last third minus middle"]


def _evaluated(runs: Sequence[StudyRun]) -> dict[int, list[float]]:
    """Return dev TGC by seed, in the order of the evaluations."""
    return {run.seed: [point.dev_tgc for point in run.curve if point.dev_tgc is not None] for run in runs}


def _falls(seeds: Mapping[int, Sequence[float]]) -> dict[int, float]:
    return {seed: max(dev) - dev[-1] for seed, dev in seeds.items()}


def _drift(dev: Sequence[float]) -> float:
    third = len(dev) // 3
    return fmean(dev[-third:]) - fmean(dev[-2 * third : -third])


def _mean(values: Sequence[float], sign: str = "") -> str:
    if not values:
        return NONE
    return mean_text(fmean(values), stdev(values), sign) if len(values) > 1 else f"{values[0]:{sign}.1f}"


@dataclass(frozen=True)
class Section:
    """A table and its title."""

    title: str
    heads: Sequence[str]
    """Names of the columns after the first."""
    rows: Sequence[Row]
    if_empty: str = ""
    """Text to show if there are no rows; if empty too, the section is left out."""
    first: str = "method"
    """Name of the first column."""
    note: str = ""
    """A line below the title."""
    commands: bool = False
    """Whether the last column is a command."""


def sections(study: Study) -> list[Section]:
    """Return the sections that have something to show."""
    candidates = [
        Section(SCORES_TITLE, HEADS, score_rows(study)),
        Section(
            differences_title(study),
            DIFFERENCE_HEADS,
            difference_rows(study),
            f"There is no run of {study.against} to compare with.",
            note=differences_note(study),
        ),
        Section(ORDERINGS_TITLE, DIFFERENCE_HEADS, ordering_rows(study), first="claim", note=orderings_note(study)),
        Section(DRIFT_TITLE, drift_heads(study), drift_rows(study), note=DRIFT_NOTE),
        Section(WARNING_TITLE, WARNING_HEADS, warning_rows(study), NO_WARNING),
        Section(COST_TITLE, COST_HEADS, cost_rows(study)),
        Section(PAPER_TITLE, HEADS, paper_rows(study)),
        Section("The parameters of each row", ["command"], command_rows(study), commands=True),
    ]
    return [section for section in candidates if section.rows or section.if_empty]


def markdown(study: Study) -> str:
    """Return the whole study as Markdown."""
    parts = [f"# {study.name}", *(f"**{note}**" for note in study.notes)]
    for section in sections(study):
        parts += [
            f"## {section.title}",
            *([section.note] if section.note and section.rows else []),
            _section_table(section),
        ]
    return "\n\n".join(parts) + "\n"


def _section_table(section: Section) -> str:
    if not section.rows:
        return section.if_empty
    rows = [(*row[:-1], f"`{row[-1]}`") for row in section.rows] if section.commands else section.rows
    return markdown_table([section.first, *section.heads], rows)


CURVES_TITLE = "Learning curves: mean and range over training seeds; dashed: a sign of a collapse in one of them"
_TABLES_BEFORE_CURVES = 2
"""The tables of scores and of differences."""
Values = dict[int, list[float]]
"""By iteration, one value per seed."""


def study_page(study: Study) -> str:
    """Return the whole page."""
    charts = f'<div class="charts">{"".join(_charts(study))}</div>'
    parts = [(section.title, _note(section) + _table(section)) for section in sections(study)]
    parts.insert(_TABLES_BEFORE_CURVES, (CURVES_TITLE, charts))
    body = "".join(f"<section><h2>{escape(title)}</h2>{content}</section>" for title, content in parts)
    notes = "".join(f"<p><b>{escape(note)}</b></p>" for note in study.notes)
    style = (files("tasks.core.pages") / "page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(study.name)}: loopline study</title><style>{style}</style></head><body><header>"
        f"<h1>{escape(study.name)}</h1>{notes}</header><main>{body}</main></body></html>\n"
    )


def _note(section: Section) -> str:
    return f"<p>{escape(section.note)}</p>" if section.note and section.rows else ""


def _table(section: Section) -> str:
    if not section.rows:
        return f"<p>{escape(section.if_empty)}</p>"
    return table([section.first, *section.heads], section.rows)


def _charts(study: Study) -> Iterator[str]:
    """Yield charts of each method's dev TGC and mean return, with warnings and the curves it is compared to."""
    methods = runs_by_method(study)
    warned = {method: {sign.iteration for run in runs for sign in run.warnings} for method, runs in methods.items()}
    for field, title, unit, scale in (
        ("dev_tgc", "dev TGC", "percent", 1),
        ("mean_return", "mean return", "percent", 100),
    ):
        values = {method: _values(runs, field, scale) for method, runs in methods.items()}
        for method in methods:
            shown = dict.fromkeys((method, study.against))
            series = {name: values[name] for name in shown if name in values}
            yield _chart(f"{method}: {title}", unit, series, sorted(warned[method]))


def _values(runs: Sequence[StudyRun], field: str, scale: float) -> Values:
    values: Values = {}
    for run in runs:
        for point in run.curve:
            value = getattr(point, field)
            if value is not None:
                values.setdefault(point.iteration, []).append(scale * value)
    return values


def _chart(title: str, unit: str, series: dict[str, Values], marks: Sequence[int]) -> str:
    means = {name: [(i, fmean(seeds)) for i, seeds in values.items()] for name, values in series.items()}
    bands: dict[str, Band] = {
        name: [(i, min(seeds), max(seeds)) for i, seeds in values.items()] for name, values in series.items()
    }
    last = max((iteration for values in series.values() for iteration in values), default=0)
    return line_chart(title, unit, means, last, marks, bands=bands)
