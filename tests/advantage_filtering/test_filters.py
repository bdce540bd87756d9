from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.advantage_filtering.estimators import leave_one_out
from tasks.advantage_filtering.filters import large_enough, most_varied


def test_the_threshold_itself_is_kept_and_smaller_ones_are_not() -> None:
    advantages = np.array([0.01, -0.01, 0.009999, -0.009999, 0.0, 0.5])
    assert large_enough(advantages, 0.01).tolist() == [True, True, False, False, False, True]
    assert large_enough(advantages, 0.0).all()


def test_the_threshold_is_met_however_the_subtraction_was_rounded() -> None:
    """Two rollouts, 0.01 apart: 0.6 - 0.59 rounds up and 0.29 - 0.28 down."""
    for higher, lower in ((60, 59), (29, 28)):
        returns = np.array([higher, lower]) / 100
        assert large_enough(leave_one_out(returns, returns == 1), 0.01).all()


@given(st.data(), st.integers(1, 1000), st.integers(2, 10))
def test_advantages_from_unit_tests_are_decided_as_fractions_would_be(
    data: st.DataObject, unit_tests: int, rollouts: int
) -> None:
    passed = data.draw(st.lists(st.integers(0, unit_tests), min_size=rollouts, max_size=rollouts))
    exact = [Fraction(one * rollouts - sum(passed), unit_tests * (rollouts - 1)) for one in passed]
    minimum = data.draw(st.sampled_from([abs(one) for one in exact] + [Fraction(1, 100)]))
    returns = np.array(passed) / unit_tests
    kept = large_enough(leave_one_out(returns, returns == 1), float(minimum))
    assert kept.tolist() == [abs(one) >= minimum for one in exact]


@pytest.mark.parametrize(("share", "count"), [(0.25, 2), (0.5, 4), (0.75, 6), (1.0, 8), (0.01, 1), (0.3, 3)])
def test_the_most_varied_groups_stay(share: float, count: int) -> None:
    stds = np.array([0.1, 0.8, 0.3, 0.7, 0.2, 0.6, 0.4, 0.5])
    kept = most_varied(stds, share)
    assert kept.sum() == count
    assert set(stds[kept]) == set(sorted(stds)[-count:])


def test_ties_go_to_the_earlier_group() -> None:
    assert most_varied(np.array([0.2, 0.2, 0.2, 0.2]), 0.5).tolist() == [True, True, False, False]


@given(st.lists(st.floats(0, 1), max_size=30), st.floats(0.01, 1))
def test_no_dropped_group_varies_more_than_a_kept_one(stds: list[float], share: float) -> None:
    array = np.array(stds)
    kept = most_varied(array, share)
    assert max(array[~kept], default=0) <= min(array[kept], default=1)
