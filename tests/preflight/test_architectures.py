"""Learner and engine compute what transformers' own models compute, for tiny random models of many architectures."""

import pytest

from tests.preflight.architectures import ARCHITECTURES, PAGE, examine, rows_of

ROWS = {row.name: row for row in rows_of(PAGE.read_text(encoding="utf-8"))}


def test_the_page_has_a_row_for_each_architecture() -> None:
    assert list(ROWS) == list(ARCHITECTURES)
    assert sum("refused" not in row.learner + row.engine for row in ROWS.values()) >= 40


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_architecture_is_supported_as_the_page_says(name: str) -> None:
    assert examine(name, ARCHITECTURES[name]) == ROWS[name]
