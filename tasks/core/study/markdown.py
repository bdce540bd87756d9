"""A study as Markdown, for a terminal, a README or an issue. Pure."""

from tasks.core.records.markdown import markdown_table
from tasks.core.records.study import Study
from tasks.core.study.sections import Section, sections


def markdown(study: Study) -> str:
    """The whole study."""
    parts = [f"# {study.name}", *(f"**{note}**" for note in study.notes)]
    for section in sections(study):
        parts += [f"## {section.title}", _table(section)]
    return "\n\n".join(parts) + "\n"


def _table(section: Section) -> str:
    if not section.rows:
        return section.if_empty
    rows = [(*row[:-1], f"`{row[-1]}`") for row in section.rows] if section.commands else section.rows
    return markdown_table([section.first, *section.heads], rows)
