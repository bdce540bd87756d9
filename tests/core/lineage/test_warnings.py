"""Warnings of the collapse monitor on their way to MLflow."""

from pathlib import Path

from tasks.core.lineage.params_and_metrics import iteration_numbers, warning_tags
from tasks.core.records.layout import Layout
from tasks.core.records.training import CollapseWarning

WARNINGS = [CollapseWarning(rule=rule, iteration=i, evidence="low") for rule, i in (("a", 2), ("b", 2), ("a", 3))]


def test_an_iteration_has_its_own_warnings_as_a_count_and_a_run_all_as_tags(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert [iteration_numbers(layout, f"i00{i}", WARNINGS) for i in range(4)] == [
        {},
        {"update/warnings": 0},
        {"update/warnings": 2},
        {"update/warnings": 1},
    ]
    assert warning_tags(WARNINGS) == {"warning.i002.a": "low", "warning.i002.b": "low", "warning.i003.a": "low"}
