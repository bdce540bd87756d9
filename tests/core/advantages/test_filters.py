from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.core.advantages.estimators import leave_one_out
from tasks.core.advantages.filters import (
    VARIANCE_FILTERS,
    large_enough,
    most_mass,
    most_softmax_mass,
    most_varied,
    near_the_largest,
)


def test_the_threshold_itself_is_kept_and_smaller_ones_are_not() -> None:
    advantages = np.array([0.01, -0.01, 0.009999, -0.009999, 0.0, 0.5])
    assert large_enough(advantages, 0.01).tolist() == [True, True, False, False, False, True]
    assert large_enough(advantages, 0.0).all()
    assert large_enough(np.array([np.nan]), 0.01).all()  # the batch's table refuses it


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


@pytest.mark.parametrize(
    ("share", "kept"),
    [
        (0.01, [0, 1, 0, 0, 0]),
        (0.4, [0, 1, 0, 0, 0]),
        (0.41, [0, 1, 1, 0, 0]),
        (0.7, [0, 1, 1, 0, 0]),
        (0.71, [0, 1, 1, 1, 0]),
        (0.9, [0, 1, 1, 1, 0]),
        (0.91, [1, 1, 1, 1, 0]),
        (1.0, [1, 1, 1, 1, 0]),
    ],
)
def test_the_fewest_groups_that_make_up_the_mass_by_hand(share: float, kept: list[int]) -> None:
    """Parts of a sum of 1, largest first: 0.4, 0.7, 0.9, 1."""
    assert most_mass(np.array([0.1, 0.4, 0.3, 0.2, 0.0]), share).tolist() == [bool(flag) for flag in kept]


def test_a_share_of_groups_and_a_share_of_mass_differ_where_one_group_has_nearly_all() -> None:
    """Use the reference's own case: stds of 4 groups, three of them small, and a share of 0.75."""
    stds = np.array([2.9, 0.2, 0.1, 0.1])
    kept = {name: int(chosen(stds, 0.75).sum()) for name, chosen in VARIANCE_FILTERS.items()}
    assert kept == {"groups": 3, "mass": 1, "softmax": 1, "largest": 1}


def test_mass_is_reached_however_its_sum_was_rounded() -> None:
    """The sum of the first nine is 0.8999999999999999."""
    assert most_mass(np.full(10, 0.1), 0.9).tolist() == [True] * 9 + [False]


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_no_mass_keeps_no_group(share: float) -> None:
    assert most_mass(np.zeros(3), share).tolist() == [False] * 3
    assert most_mass(np.zeros(0), share).tolist() == []


deviations = st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1), st.sampled_from([0.25, 0.5])), max_size=12)
portions = st.floats(0.01, 1)


@given(deviations, portions, portions)
def test_more_mass_keeps_every_group_that_less_does(stds: list[float], one: float, other: float) -> None:
    array = np.array(stds)
    less, more = most_mass(array, min(one, other)), most_mass(array, max(one, other))
    assert not (less & ~more).any()
    assert most_mass(array, 1.0).tolist() == (array > 0).tolist()


@given(deviations, portions)
def test_the_mass_is_reached_and_by_no_fewer_groups(stds: list[float], share: float) -> None:
    """Compare in fractions with the smallest number of groups that reach the mass, which are the largest groups."""
    kept = most_mass(np.array(stds), share)
    exact = sorted((Fraction(std) for std in stds), reverse=True)
    wanted, slack = Fraction(share) * sum(exact), Fraction(2, 10**9) * sum(exact)
    assert sum(Fraction(std) for std, chosen in zip(stds, kept, strict=True) if chosen) >= wanted - slack
    assert not kept.any() or sum(exact[: int(kept.sum()) - 1]) < wanted


@given(deviations, portions, st.randoms(use_true_random=False))
def test_the_order_of_the_groups_decides_only_between_equal_ones(stds: list[float], share: float, random: Any) -> None:
    order = np.array(random.sample(range(len(stds)), len(stds)), dtype=np.int64)
    array = np.array(stds)
    kept, shuffled = most_mass(array, share), most_mass(array[order], share)
    assert sorted(array[kept]) == sorted(array[order][shuffled])
    for std in set(stds):
        flags = kept[array == std].tolist()
        assert flags == sorted(flags, reverse=True)


@pytest.mark.parametrize(
    ("share", "kept"),
    [(0.4, [0, 0, 1, 0]), (0.41, [1, 0, 1, 0]), (0.7, [1, 0, 1, 0]), (0.71, [1, 1, 1, 0]), (1.0, [1, 1, 1, 0])],
)
def test_softmax_mass_by_hand(share: float, kept: list[int]) -> None:
    """Weights are 3, 3 and 4; a std of 0 has no weight, though e^0 is 1."""
    stds = np.array([np.log(1.5), np.log(1.5), np.log(2.0), 0.0])
    assert most_softmax_mass(stds, share).tolist() == [bool(flag) for flag in kept]


@pytest.mark.parametrize(
    ("share", "kept"), [(0.01, [1, 1, 1, 0]), (0.25, [1, 1, 1, 0]), (0.26, [0, 1, 1, 0]), (0.76, [0, 1, 0, 0])]
)
def test_a_share_of_the_largest_by_hand(share: float, kept: list[int]) -> None:
    assert near_the_largest(np.array([0.1, 0.4, 0.3, 0.0]), share).tolist() == [bool(flag) for flag in kept]
    assert near_the_largest(np.array([0.3, 0.1 + 0.2]), 1.0).all(), "equal, but for rounding"


@pytest.mark.parametrize("name", ["mass", "softmax", "largest"])
@given(stds=deviations, share=portions)
def test_the_largest_is_kept_and_no_group_of_equal_returns(name: str, stds: list[float], share: float) -> None:
    array = np.array(stds)
    kept = VARIANCE_FILTERS[name](array, share)  # type: ignore[index]
    assert not kept[array == 0].any()
    assert kept.any() == (array > 0).any()
    assert not kept.any() or array[kept].max() == array.max()
    assert array[kept].min(initial=1) >= array[~kept].max(initial=0) * (1 - 1e-8)
