"""Differences between methods over training seeds and scenarios, by hand and by their properties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.core.evaluation.differences import crossed_test, holm, paired_test


def means(values: list[list[float]]) -> dict[int, dict[tuple[str, ...], float]]:
    """Return {seed: {(scenario, task): share}} of rows of seeds and columns of tasks, two tasks to a scenario."""
    return {
        seed: {(f"s{task // 2}", f"t{task}"): value for task, value in enumerate(row)}
        for seed, row in enumerate(values)
    }


def test_a_case_by_hand() -> None:
    """Differences 1 0 | 0 0 (seed 0) and 1 1 | 0 0 (seed 1): mean 3/8."""
    test = crossed_test(means([[0] * 4, [0] * 4]), means([[1, 0, 0, 0], [1, 1, 0, 0]]), 0.95)
    assert test is not None
    # Sums of deviations: seeds -1/2, 1/2; scenarios 3/2, -3/2; both 1/4, -3/4, 5/4, -3/4.
    by_seed, by_scenario = 2 * (2 / 4) / 64, 2 * (2 * 9 / 4) / 64
    by_both = 4 / 3 * (1 + 9 + 25 + 9) / 16 / 64
    variance = max(by_seed + by_scenario - by_both, by_seed, by_scenario)
    assert test.difference == pytest.approx(37.5)
    assert test.standard_error == pytest.approx(100 * variance**0.5)
    assert test.high is not None and test.high - test.difference == pytest.approx(
        12.7062 * 100 * variance**0.5, rel=1e-5
    )
    assert (test.pairs, test.scenarios) == (4, 2)


def test_one_seed_is_the_paired_test() -> None:
    first, second = means([[0.0, 0.5, 1.0, 0.0, 1.0, 1.0]]), means([[1.0, 0.5, 1.0, 1.0, 0.0, 1.0]])
    crossed, paired = crossed_test(first, second, 0.9), paired_test(first[0], second[0], 0.9)
    assert crossed is not None and paired is not None
    assert crossed.__dict__ == pytest.approx(paired.__dict__)


def test_seeds_that_both_have_are_compared_and_nothing_shared_is_none() -> None:
    first, second = means([[0.0, 0.0], [0.0, 0.0]]), means([[1.0, 1.0]])
    test = crossed_test(first, second, 0.95)
    assert test is not None and test.difference == 100
    assert crossed_test(first, {7: {}}, 0.95) is None


def test_no_difference_at_all_is_tested_and_one_without_spread_is_not() -> None:
    third = [1 / 3] * 168
    same = crossed_test(means([third, third]), means([third, third]), 0.95)
    more = crossed_test(means([[0.0] * 168] * 2), means([third, third]), 0.95)
    assert same is not None and (same.difference, same.p_value) == (0, 1)
    assert more is not None and (more.standard_error, more.p_value) == (0, None)


@settings(max_examples=50)
@given(st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=6, max_size=6), min_size=2, max_size=4))
def test_swapping_the_methods_flips_only_the_sign(rows: list[list[float]]) -> None:
    zeros = means([[0.0] * 6 for _ in rows])
    there, back = crossed_test(zeros, means(rows), 0.95), crossed_test(means(rows), zeros, 0.95)
    assert there is not None and back is not None
    assert (there.difference, there.standard_error) == pytest.approx((-back.difference, back.standard_error))
    assert there.p_value == back.p_value or there.p_value == pytest.approx(back.p_value)


def test_intervals_have_their_nominal_coverage_when_seeds_and_scenarios_vary() -> None:
    """Two-way random effects, 5 seeds x 40 scenarios: a 90% interval holds the true difference 0 in 90% of studies."""
    rng, inside = np.random.default_rng(0), 0
    for _ in range(300):
        seeds, scenarios = rng.normal(0, 0.1, (5, 1)), rng.normal(0, 0.3, (1, 40))
        values = seeds + scenarios + rng.normal(0, 0.3, (5, 40))
        second = {s: {(f"s{c}", f"t{c}"): float(values[s, c]) for c in range(40)} for s in range(5)}
        first = {s: dict.fromkeys(second[s], 0.0) for s in second}
        test = crossed_test(first, second, 0.9)
        assert test is not None and test.low is not None and test.high is not None
        inside += test.low <= 0 <= test.high
    assert 0.85 <= inside / 300 <= 0.97


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
