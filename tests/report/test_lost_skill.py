"""Skill lost again, on series worked out by hand."""

from tasks.report.lost_skill import Series, lost_skill


def found(dev_tgc: Series) -> list[tuple[int, str]]:
    return [(warning.iteration, warning.evidence) for warning in lost_skill(dev_tgc)]


def test_dev_scores_ten_points_under_the_best_twice_in_a_row_are_lost_skill() -> None:
    """The best is 70; 60 is ten under it, 61 is not; iterations that were not evaluated are passed over."""
    assert found([50, 70, 60, 61, 60, None, 61, 61]) == []
    ((iteration, evidence),) = found([None, 70, None, 60, None, 59, None, 75])
    assert (iteration, evidence) == (4, "TGC on dev fell 10 points or more under its best (70.0) and stayed there")


def test_too_few_evaluations_say_nothing() -> None:
    assert found([]) == found([None]) == found([80, 0]) == []
