"""The history of the benchmarks' figures: which line a commit's takes the place of, and what is warned of."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

FIGURES = {"engine beside generate": 2.0, "steps of Sokoban": 5.0}


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "benchmarks"))
    return import_module("figures")


def line(commit: str, changed: dict[str, float] | None = None, machine: str = "two cores") -> dict[str, Any]:
    return {"commit": commit, "date": "2026-11-27", "machine": machine, "figures": FIGURES | (changed or {})}


def test_a_figure_that_fell_by_more_than_a_fifth_is_named_with_both_values(figures: Any) -> None:
    new = line("b", {"engine beside generate": 1.5, "steps of Sokoban": 4.01})
    assert figures.warnings([line("a")], new) == ["engine beside generate: 1.5, was 2 at a (-25%)"]


def test_only_the_last_line_of_the_same_kind_of_machine_counts(figures: Any) -> None:
    slow = dict.fromkeys(FIGURES, 1.0)
    lines = [line("a"), line("b", slow), line("c", machine="one core")]
    assert figures.warnings(lines, line("d", slow)) == []
    assert figures.warnings([line("a", machine="one core")], line("d", slow)) == []


def test_a_commit_is_not_compared_with_itself_and_its_line_takes_the_place_of_the_one_before(figures: Any) -> None:
    again = line("a", {"engine beside generate": 1.0})
    assert figures.warnings([line("a")], again) == []
    other = line("a", machine="one core")
    assert figures.put([line("a"), other, line("b")], again) == [other, line("b"), again]


def test_a_figure_that_is_new_is_compared_with_nothing(figures: Any) -> None:
    assert figures.warnings([line("a")], line("b", {"imports": 0.1})) == []


def test_there_are_ten_and_each_is_read_from_what_its_benchmark_wrote(figures: Any) -> None:
    assert len({figure.name for figure in figures.READ} | {figures.IMPORTS}) == 10
    for figure in figures.READ:
        found = json.loads((figures.RESULTS / f"{figure.benchmark}.json").read_text())
        assert figure.read(found) > 0, figure.name
