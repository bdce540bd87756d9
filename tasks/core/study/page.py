"""A study as one HTML page in the report's style, which loads nothing. Pure."""

from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from statistics import fmean

from tasks.core.pages.charts import Band, line_chart
from tasks.core.pages.tables import table
from tasks.core.records.study import Study, StudyRun
from tasks.core.study.sections import Section, sections
from tasks.core.study.tables import runs_by_method

CURVES_TITLE = "Learning curves: mean and range over training seeds; dashed: a sign of a collapse in one of them"
_TABLES_BEFORE_CURVES = 2
"""The tables of scores and of differences."""
Values = dict[int, list[float]]
"""By iteration, one value per seed."""


def study_page(study: Study) -> str:
    """Return the whole page."""
    charts = f'<div class="charts">{"".join(_charts(study))}</div>'
    parts = [(section.title, _table(section)) for section in sections(study)]
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
