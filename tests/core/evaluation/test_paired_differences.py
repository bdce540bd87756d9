"""The paired, clustered test compared with figures worked out by hand and with scipy's own t test."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from tasks.core.evaluation.differences import paired_test, scenario_means, task_means
from tasks.core.evaluation.tgc_sgc import Outcome


def outcome(task: str, run: int, success: bool) -> Outcome:
    return Outcome(task, task[0], 1, run, success)


def test_means_are_over_evaluation_runs() -> None:
    played = [outcome("a1", 0, True), outcome("a1", 1, False), outcome("a2", 0, True), outcome("a2", 1, True)]
    assert task_means(played) == {("a", "a1"): 0.5, ("a", "a2"): 1.0}
    assert scenario_means(played) == {("a",): 0.5}


def test_by_hand_three_scenarios_of_two_tasks() -> None:
    """Differences a: 1, 1; b: 0, 1; c: 0, 0. Mean 1/2; cluster sums of deviations 1, 0, -1.

    se = sqrt(3/2 * (1 + 0 + 1)) / 6 = sqrt(3) / 6; t(2) at 97.5% is 4.302653; t = 0.5 / se = sqrt(3), whose two-sided
    p with 2 degrees of freedom is 1 - t / sqrt(t^2 + 2) = 1 - sqrt(3/5).
    """
    first = {("a", "1"): 0.0, ("a", "2"): 0.0, ("b", "1"): 1.0, ("b", "2"): 0.0, ("c", "1"): 0.0, ("c", "2"): 1.0}
    second = {("a", "1"): 1.0, ("a", "2"): 1.0, ("b", "1"): 1.0, ("b", "2"): 1.0, ("c", "1"): 0.0, ("c", "2"): 1.0}
    found = paired_test(first, second, 0.95)
    assert found is not None
    error = 100 * math.sqrt(3) / 6
    assert found.difference == pytest.approx(50)
    assert found.standard_error == pytest.approx(error)
    assert (found.low, found.high) == pytest.approx((50 - 4.302653 * error, 100), rel=1e-6)
    assert found.p_value == pytest.approx(1 - math.sqrt(3 / 5))
    assert (found.pairs, found.scenarios) == (6, 3)


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 0.5, 1.0])), min_size=2, max_size=20))
def test_one_task_per_scenario_is_the_ordinary_paired_t_test(pairs: list[tuple[float, float]]) -> None:
    first = {(str(index), "t"): a for index, (a, _) in enumerate(pairs)}
    second = {(str(index), "t"): b for index, (_, b) in enumerate(pairs)}
    found = paired_test(first, second, 0.95)
    assert found is not None
    if len({b - a for a, b in pairs}) == 1:
        assert (found.standard_error, found.low, found.high, found.p_value) == (0, None, None, None)
    else:
        expected = ttest_rel([b for _, b in pairs], [a for a, _ in pairs])
        assert found.p_value == pytest.approx(expected.pvalue)
        interval = expected.confidence_interval(0.95)
        assert (found.low, found.high) == pytest.approx((100 * max(-1, interval.low), 100 * min(1, interval.high)))


def test_only_what_both_played_counts() -> None:
    first = {("a", "1"): 0.0, ("b", "1"): 0.0, ("c", "1"): 1.0}
    found = paired_test(first, {("a", "1"): 1.0, ("b", "1"): 0.0, ("z", "1"): 1.0}, 0.95)
    assert found is not None
    assert (found.difference, found.pairs, found.scenarios) == (50, 2, 2)
    assert paired_test(first, {("z", "1"): 1.0}, 0.95) is None


def test_one_scenario_gives_no_standard_error() -> None:
    found = paired_test({("a", "1"): 0.0}, {("a", "1"): 1.0}, 0.95)
    assert found is not None
    assert (found.difference, found.standard_error, found.low, found.p_value) == (100, None, None, None)


def test_thirds_that_cancel_are_no_difference() -> None:
    """2/3 and 2/3 against 1 and 1/3: in floating point the differences add up to 2.8e-17, which is no gain."""
    first = {("a", "1"): 2 / 3, ("b", "1"): 2 / 3}
    second = {("a", "1"): 1.0, ("b", "1"): 1 / 3}
    test = paired_test(first, second, 0.95)
    assert test is not None and test.difference == 0.0


def test_equal_gains_in_thirds_have_no_spread() -> None:
    first = {("a", "1"): 0.0, ("b", "1"): 1 / 3, ("c", "1"): 2 / 3}
    second = {("a", "1"): 1 / 3, ("b", "1"): 2 / 3, ("c", "1"): 1.0}
    test = paired_test(first, second, 0.95)
    assert test is not None and (test.standard_error, test.p_value) == (0.0, None)
