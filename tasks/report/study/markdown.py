"""A study as Markdown, for a terminal, a README or an issue. Pure."""

from collections.abc import Iterator

from tasks.core.records.markdown import markdown_table
from tasks.core.records.study import Study
from tasks.report.study.drift import drift_heads, drift_rows, drift_title
from tasks.report.study.tables import (
    COST_HEADS,
    COST_TITLE,
    DIFFERENCE_HEADS,
    HEADS,
    NO_WARNING,
    PAPER_TITLE,
    WARNING_HEADS,
    WARNING_TITLE,
    command_rows,
    cost_rows,
    difference_rows,
    differences_title,
    paper_rows,
    score_rows,
    scores_title,
    warning_rows,
)


def markdown(study: Study) -> str:
    """The whole study."""
    parts = [
        f"# {study.name}",
        *(f"**{note}**" for note in study.notes),
        f"## {scores_title(study)}",
        markdown_table(["method", *HEADS], score_rows(study)),
        f"## {differences_title(study)}",
        markdown_table(["method", *DIFFERENCE_HEADS], difference_rows(study)),
        f"## {drift_title(study)}",
        markdown_table(["method", *drift_heads(study)], drift_rows(study)),
        f"## {COST_TITLE}",
        markdown_table(["method", *COST_HEADS], cost_rows(study)),
        f"## {WARNING_TITLE}",
        markdown_table(WARNING_HEADS, rows) if (rows := warning_rows(study)) else NO_WARNING,
        *_paper(study),
        "## The parameters of each row",
        markdown_table(["method", "command"], [(method, f"`{command}`") for method, command in command_rows(study)]),
    ]
    return "\n\n".join(parts) + "\n"


def _paper(study: Study) -> Iterator[str]:
    if rows := paper_rows(study):
        yield f"## {PAPER_TITLE}"
        yield markdown_table(["method", *HEADS], rows)
