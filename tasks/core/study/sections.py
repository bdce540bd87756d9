"""A study's tables in order, shared by its Markdown and its page, with the drift of dev TGC after its best. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from tasks.core.pages.tables import markdown_table
from tasks.core.records.study import Study, StudyRun
from tasks.core.study.comparing import interval_over_seeds
from tasks.core.study.tables import (
    COST_HEADS,
    COST_TITLE,
    DIFFERENCE_HEADS,
    HEADS,
    NO_WARNING,
    NONE,
    PAPER_TITLE,
    WARNING_HEADS,
    WARNING_TITLE,
    Row,
    command_rows,
    cost_rows,
    difference_rows,
    differences_title,
    level,
    mean_text,
    ordering_rows,
    orderings_title,
    paper_rows,
    runs_by_method,
    score_rows,
    scores_title,
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
        fall = _mean(list(falls.values()), study.confidence)
        signed = (_mean(values, study.confidence, "+") for values in (more, drifts))
        rows.append((method, str(len(seeds)), f"{best:.1f}", f"{last:.1f}", fall, *signed))
    return rows


def drift_title(study: Study) -> str:
    """Return the title of `drift_rows`."""
    return f"Drift: dev TGC at the best and at the last evaluation, {level(study)} intervals over seeds"


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


def _mean(values: Sequence[float], confidence: float, sign: str = "") -> str:
    if not values:
        return NONE
    interval = interval_over_seeds(values, confidence)
    if interval is None:
        return f"{values[0]:{sign}.1f}"
    return mean_text(fmean(values), stdev(values), *interval, sign)


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
    commands: bool = False
    """Whether the last column is a command."""


def sections(study: Study) -> list[Section]:
    """Return the sections that have something to show."""
    candidates = [
        Section(scores_title(study), HEADS, score_rows(study)),
        Section(
            differences_title(study),
            DIFFERENCE_HEADS,
            difference_rows(study),
            f"There is no run of {study.against} to compare with.",
        ),
        Section(orderings_title(study), DIFFERENCE_HEADS, ordering_rows(study), first="claim"),
        Section(drift_title(study), drift_heads(study), drift_rows(study)),
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
        parts += [f"## {section.title}", _table(section)]
    return "\n\n".join(parts) + "\n"


def _table(section: Section) -> str:
    if not section.rows:
        return section.if_empty
    rows = [(*row[:-1], f"`{row[-1]}`") for row in section.rows] if section.commands else section.rows
    return markdown_table([section.first, *section.heads], rows)
