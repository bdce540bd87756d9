"""A study's tables in order, shared by its Markdown and its page. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.core.records.markdown import markdown_table
from tasks.core.records.study import Study
from tasks.core.study.drift import drift_heads, drift_rows, drift_title
from tasks.core.study.tables import (
    COST_HEADS,
    COST_TITLE,
    DIFFERENCE_HEADS,
    HEADS,
    NO_WARNING,
    PAPER_TITLE,
    WARNING_HEADS,
    WARNING_TITLE,
    Row,
    command_rows,
    cost_rows,
    difference_rows,
    differences_title,
    ordering_rows,
    orderings_title,
    paper_rows,
    score_rows,
    scores_title,
    warning_rows,
)


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
