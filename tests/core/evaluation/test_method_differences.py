"""Differences between methods over training seeds and scenarios, by hand and by their properties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t, ttest_1samp

from tasks.core.evaluation.differences import holm, method_test


def means(values: list[list[float]]) -> dict[int, dict[tuple[str, ...], float]]:
    """Return {seed: {(scenario, task): share}} of rows of seeds and columns of tasks, two tasks to a scenario."""
    return {
        seed: {(f"s{task // 2}", f"t{task}"): value for task, value in enumerate(row)}
        for seed, row in enumerate(values)
    }


def test_a_case_by_hand() -> None:
    """Differences 1 0 | 0 0 (seed 0) and 1 1 | 0 0 (seed 1): mean 3/8.

    Means of the seeds 1/4 and 1/2, of the scenarios 3/4 and 0: standard errors 1/8 and 3/8, both with one degree of
    freedom, so the scenarios decide. t = 1, and p is 1/2 (Cauchy). The interval is wider than percentages can be.
    """
    test = method_test(means([[0] * 4, [0] * 4]), means([[1, 0, 0, 0], [1, 1, 0, 0]]), 0.95)
    assert test is not None
    assert test.difference == pytest.approx(37.5)
    assert test.standard_error == pytest.approx(37.5) and test.p_value == pytest.approx(0.5)
    assert (test.low, test.high) == (-100, 100) and (test.pairs, test.scenarios) == (4, 2)


def test_beyond_five_seeds_the_variances_are_added() -> None:
    """Three of six seeds gain 0.6, in the first of two scenarios twice as much as the mean.

    Means of the seeds 0.3 and 0: mean 0.15, standard error 0.3 * sqrt(0.3 / 6). Means of the scenarios 0.3 and 0:
    standard error 0.15. Added: 0.15 * sqrt(1.2), with 1.2^2 / (0.2^2 / 5 + 1) degrees of freedom.
    """
    test = method_test(means([[0] * 4] * 6), means([[0.6, 0.6, 0, 0]] * 3 + [[0] * 4] * 3), 0.5)
    assert test is not None and test.low is not None and test.high is not None
    assert test.standard_error == pytest.approx(15 * 1.2**0.5)
    reach = t.ppf(0.75, 1.44 / 1.008) * 15 * 1.2**0.5
    assert (test.low, test.high) == pytest.approx((15 - reach, 15 + reach))


@settings(max_examples=50)
@given(
    st.integers(2, 4).flatmap(
        lambda seeds: st.lists(
            st.lists(st.sampled_from([0.0, 1 / 3, 1.0]), min_size=6, max_size=6), min_size=seeds, max_size=seeds
        )
    )
)
def test_the_larger_of_scipys_two_intervals_and_p_values(rows: list[list[float]]) -> None:
    test = method_test(means([[0.0] * 6 for _ in rows]), means(rows), 0.9)
    values = np.array(rows)
    samples = [values.mean(1), values.reshape(len(rows), 3, 2).mean((0, 2))]
    tests = [ttest_1samp(100 * sample, 0) for sample in samples if np.ptp(sample) > 1e-9]
    assert test is not None
    if not tests:
        assert (test.low, test.high, test.p_value) == (None, None, None)
        return
    ends = [one.confidence_interval(0.9) for one in tests]
    assert test.low == pytest.approx(max(-100, min(end.low for end in ends)), abs=1e-6)
    assert test.high == pytest.approx(min(100, max(end.high for end in ends)), abs=1e-6)
    assert test.p_value == pytest.approx(max(one.pvalue for one in tests), abs=1e-9)


def test_one_seed_and_one_scenario_have_a_difference_and_no_test() -> None:
    one_seed = method_test(means([[0.0, 0.5, 1.0, 0.0]]), means([[1.0, 0.5, 1.0, 1.0]]), 0.9)
    one_scenario = method_test(means([[0.0, 0.5], [0.0, 0.0]]), means([[1.0, 0.5], [0.5, 0.5]]), 0.9)
    for test in (one_seed, one_scenario):
        assert test is not None and test.difference == 50
        assert (test.standard_error, test.low, test.high, test.p_value) == (None, None, None, None)


def test_seeds_that_both_have_are_compared_and_nothing_shared_is_none() -> None:
    first, second = means([[0.0, 0.0], [0.0, 0.0]]), means([[1.0, 1.0]])
    test = method_test(first, second, 0.95)
    assert test is not None and test.difference == 100
    assert method_test(first, {7: {}}, 0.95) is None


def test_without_spread_there_is_no_test() -> None:
    third = [1 / 3] * 168
    for first, difference in ((third, 0), ([0.0] * 168, 100 / 3)):
        test = method_test(means([first, first]), means([third, third]), 0.95)
        assert test is not None and test.difference == pytest.approx(difference)
        assert (test.standard_error, test.low, test.high, test.p_value) == (0, None, None, None)


def test_equal_seeds_leave_the_scenarios_to_decide() -> None:
    row = [1.0, 0.0, 0.0, 0.0, 1.0, 1.0]
    test = method_test(means([[0.0] * 6] * 2), means([row, row]), 0.95)
    expected = ttest_1samp([50, 0, 100], 0)
    assert test is not None and test.p_value == pytest.approx(expected.pvalue)


@settings(max_examples=50)
@given(st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=6, max_size=6), min_size=2, max_size=4))
def test_swapping_the_methods_flips_only_the_sign(rows: list[list[float]]) -> None:
    zeros = means([[0.0] * 6 for _ in rows])
    there, back = method_test(zeros, means(rows), 0.95), method_test(means(rows), zeros, 0.95)
    assert there is not None and back is not None
    assert (there.difference, there.standard_error) == pytest.approx((-back.difference, back.standard_error))
    assert there.p_value == back.p_value or there.p_value == pytest.approx(back.p_value)


@pytest.mark.parametrize("seeds", [3, 20])
@pytest.mark.parametrize(("seed_sd", "method_sd"), [(0.1, 0.0), (0.1, 0.3), (0.0, 0.3), (0.3, 0.0), (0.4, 0.3)])
def test_intervals_hold_for_other_seeds_and_other_tasks(seed_sd: float, method_sd: float, seeds: int) -> None:
    """40 scenarios: 90% intervals miss the true difference 0 in about 10% of studies, or less.

    A difference by scenario that all seeds share (`method_sd`) is what an interval over seeds alone doesn't see.
    """
    rng, missed = np.random.default_rng(1), 0
    for _ in range(400):
        of_seeds, of_scenarios = rng.normal(0, seed_sd, (seeds, 1)), rng.normal(0, method_sd, (1, 40))
        values = of_seeds + of_scenarios + rng.normal(0, 0.3, (seeds, 40))
        second = {s: {(f"s{c}", f"t{c}"): float(values[s, c]) for c in range(40)} for s in range(seeds)}
        first = {s: dict.fromkeys(second[s], 0.0) for s in second}
        test = method_test(first, second, 0.9)
        assert test is not None and test.low is not None and test.high is not None
        missed += not test.low <= 0 <= test.high
    assert missed / 400 <= 0.145


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, None]) == [pytest.approx(0.03), pytest.approx(0.06), pytest.approx(0.06), None]
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_never_lowers_and_keeps_the_order(p_values: list[float]) -> None:
    corrected = holm(list(p_values))
    pairs = sorted(zip(p_values, (c for c in corrected if c is not None), strict=True))
    assert all(p <= c <= 1 for p, c in pairs)
    assert [c for _, c in pairs] == sorted(c for _, c in pairs)
