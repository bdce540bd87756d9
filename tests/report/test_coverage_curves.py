import pytest

from tasks.core.signal_coverage import coverage
from tasks.report.heat_map import Cell, coverage_curves


def test_the_curves_by_hand() -> None:
    """Three tasks; in the second iteration one group is mixed, one differs by return alone, one is a single rollout."""
    progress = [
        ("a", {1: Cell(0.5, 0.5, 4, varies=True), 2: Cell(0.75, 0.75, 4, varies=True)}),
        ("b", {1: Cell(0.0, 0.0, 4), 2: Cell(0.2, 0.0, 4, varies=True)}),
        ("c", {1: Cell(1.0, 1.0, 4), 2: Cell(1.0, 1.0, 1), 3: Cell(1.0, 1.0, 2)}),
    ]
    curves = coverage_curves(progress, 4)
    assert curves["by success"] == [(1, pytest.approx(1 / 3)), (2, 0.5), (3, 0.0)]
    assert curves["by return"] == [(1, pytest.approx(1 / 3)), (2, 1.0), (3, 0.0)]
    second = coverage([2, 0, 4], [4, 4, 4]).by_task(4)
    third = coverage([2 / 2 + 3, 0, 4 / 2 + 1], [6, 6, 3]).by_task(2)
    expected = dict(curves["expected"])
    assert expected == {2: pytest.approx(second[:2].mean()), 3: pytest.approx(third[2])}


def test_a_run_without_rollouts_has_no_curves() -> None:
    assert set(map(len, coverage_curves([], 3).values())) == {0}
