"""Warnings of the collapse monitor on their way to MLflow."""

from pathlib import Path

from tasks.core.records.documents import write_document
from tasks.core.records.layout import Layout
from tasks.core.records.monitoring import CollapseWarning, Monitor
from tasks.lineage.tracking.params_and_metrics import iteration_numbers, warning_tags

WARNINGS = tuple(CollapseWarning(rule=rule, iteration=i, evidence="low") for rule, i in (("a", 2), ("b", 2), ("a", 3)))


def test_an_iteration_has_its_own_warnings_as_a_count_and_as_tags(tmp_path: Path) -> None:
    """monitor.json of an iteration holds those of all before it, too."""
    layout = Layout(tmp_path)
    write_document(layout.monitor("i003"), Monitor(warnings=WARNINGS))
    write_document(layout.monitor("i002"), Monitor(warnings=WARNINGS[:2]))
    assert iteration_numbers(layout, "i002")["warnings"] == 2
    assert warning_tags(layout, "i002") == {"warning.i002.a": "low", "warning.i002.b": "low"}
    assert warning_tags(layout, "i003") == {"warning.i003.a": "low"}
    assert (warning_tags(layout, "i001"), iteration_numbers(layout, "i001")) == ({}, {})
