"""Collapse signs on series worked out by hand."""

import pytest

from tasks.report.collapse import CollapseThresholds, Series, collapse_warnings

LIMITS = CollapseThresholds()
STEADY: dict[str, Series] = {
    "mean_return": [0.5] * 8,
    "group_return_std": [0.4] * 8,
    "entropy": [1.0] * 8,
    "grad_norm": [0.5] * 8,
    "mismatch_share": [0.0] * 8,
    "dev_tgc": [None, 50.0] * 4,
}


def signs(**changed: Series) -> list[tuple[int, str]]:
    return [(sign.iteration, sign.message) for sign in collapse_warnings({**STEADY, **changed}, LIMITS)]


def test_a_steady_run_has_none() -> None:
    assert signs() == []


def test_a_std_under_half_of_its_start_twice_in_a_row_is_one() -> None:
    """Start = mean(0.4, 0.5, 0.3) = 0.4; half of it is 0.2; 0.19 alone is no sign, 0.19 and 0.1 are."""
    ((iteration, message),) = signs(group_return_std=[0.4, 0.5, 0.3, 0.19, 0.2, 0.19, 0.1, 0.4])
    assert iteration == 6
    assert message == "the spread of returns within groups fell under 50% of its start (0.4) and stayed there"


def test_a_small_std_of_a_solved_world_is_none() -> None:
    fallen = [0.4, 0.4, 0.4, 0.4, 0.01, 0.01, 0.01, 0.01]
    assert signs(group_return_std=fallen, mean_return=[0.5] * 4 + [0.95] * 4) == []
    assert [i for i, _ in signs(group_return_std=fallen, mean_return=[0.5] * 4 + [0.89] * 4)] == [5]


def test_the_entropy_may_fall_to_three_tenths_of_its_start() -> None:
    assert signs(entropy=[1.0, 1.0, 1.0, 0.31, 0.31, 0.31, 0.31, 0.31]) == []
    assert [i for i, _ in signs(entropy=[1.0, 1.0, 1.0, 0.31, 0.29, 0.29, 0.31, 0.31])] == [5]


def test_a_missing_value_breaks_a_row_and_never_counts_as_the_start() -> None:
    assert signs(entropy=[None, 1.0, 1.0, 1.0, 0.1, None, 0.1, 1.0]) == []
    assert [i for i, _ in signs(entropy=[None, 1.0, 1.0, 1.0, 0.1, 0.1, None, 1.0])] == [5]


def test_a_gradient_norm_over_four_times_the_median_before_it_is_a_spike() -> None:
    """Median of (1, 2, 3, 2, 1) = 2: 8 is no spike, 8.1 is."""
    before: list[float | None] = [1, 2, 3, 2, 1]
    assert signs(grad_norm=[*before, 8.0, 1, 1]) == []
    ((iteration, message),) = signs(grad_norm=[*before, 8.1, 1, 1])
    assert (iteration, message) == (6, "the gradient norm jumped to 8.1, 4.0 times its recent median")


@pytest.mark.parametrize("short", [[], [9.0], [1.0, 9.0, 0.0]])
def test_too_few_values_say_nothing(short: list[float | None]) -> None:
    series = {"mean_return": [0.0] * len(short), "group_return_std": short, "entropy": short, "grad_norm": short}
    assert signs(**series) == []


def test_an_entropy_over_three_times_its_start_twice_in_a_row_is_one() -> None:
    assert signs(entropy=[0.1, 0.2, 0.3, 0.6, 0.61, 0.6, 0.61, 0.6]) == []
    ((iteration, message),) = signs(entropy=[0.1, 0.2, 0.3, 0.61, 0.6, 0.7, 0.8, 0.2])
    assert (iteration, message) == (6, "the entropy rose over 3 times its start (0.2) and stayed there")


def test_dev_scores_ten_points_under_the_best_twice_in_a_row_are_one() -> None:
    """The best is 70; 60 is ten under it, 61 is not; iterations that were not evaluated are passed over."""
    assert signs(dev_tgc=[50, 70, 60, 61, 60, None, 61, 61]) == []
    ((iteration, message),) = signs(dev_tgc=[None, 70, None, 60, None, 59, None, 75])
    assert (iteration, message) == (4, "TGC on dev fell 10 points or more under its best (70.0) and stayed there")


def test_engine_and_learner_that_disagree_are_a_sign() -> None:
    ((iteration, message),) = signs(mismatch_share=[None, 0.01, 0.02, 0.5, 0, 0, 0, 0])
    assert (iteration, message) == (
        3,
        "engine and learner disagree by more than rounding explains on 2.0% of the policy tokens",
    )


def test_signs_come_in_the_order_of_their_iterations() -> None:
    found = signs(mismatch_share=[0.0] * 7 + [0.1], entropy=[1, 1, 1, 0.1, 0.1, 1, 1, 1])
    assert [iteration for iteration, _ in found] == [4, 8]
