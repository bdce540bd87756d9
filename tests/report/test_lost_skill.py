"""Lost skill, on series worked out by hand."""

from tasks.report.run_stats import lost_skill


def found(dev_tgc: dict[int, float]) -> list[tuple[int, str]]:
    return [(warning.iteration, warning.evidence) for warning in lost_skill(dev_tgc)]


def test_dev_scores_ten_points_under_the_best_twice_in_a_row_are_lost_skill() -> None:
    """The best is 70; 60 is ten under it, 61 is not; iterations that were not evaluated are skipped."""
    assert found({1: 50, 2: 70, 3: 60, 4: 61, 5: 60, 7: 61, 8: 61}) == []
    ((iteration, evidence),) = found({2: 70, 4: 60, 6: 59, 8: 75})
    assert (iteration, evidence) == (4, "TGC on dev fell 10 points or more under its best (70.0) and stayed there")


def test_the_base_policys_skill_counts_too() -> None:
    assert [iteration for iteration, _ in found({0: 41, 1: 5, 2: 5})] == [1]


def test_too_few_evaluations_give_no_warning() -> None:
    assert found({}) == found({0: 80, 1: 0}) == []
