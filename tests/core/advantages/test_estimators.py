import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.core.advantages.estimators import (
    ESTIMATORS,
    Floats,
    divided_by_std,
    group_mean,
    leave_one_out,
    return_std,
    success,
)
from tasks.core.config.advantages import StdKind

unit_tests_passed = st.integers(0, 60).map(lambda passed: passed / 60)
returns_of_a_group = st.lists(unit_tests_passed, min_size=2, max_size=20).map(np.array)


def none_succeeded(returns: Floats) -> np.ndarray:
    return np.zeros(len(returns), dtype=bool)


def test_by_hand() -> None:
    returns = np.array([1.0, 0.5, 0.0, 0.5])
    flags = np.array([True, False, False, False])
    assert leave_one_out(returns, flags) == pytest.approx([2 / 3, 0, -2 / 3, 0])
    assert group_mean(returns, flags) == pytest.approx([0.5, 0, -0.5, 0])
    assert success(returns, flags).tolist() == [1, 0, 0, 0]
    for kind, std in (("population", (1 / 8) ** 0.5), ("sample", (1 / 6) ** 0.5)):
        assert return_std(returns, kind) == pytest.approx(std)
        assert divided_by_std(group_mean(returns, flags), returns, kind) == pytest.approx([0.5 / std, 0, -0.5 / std, 0])


@given(returns_of_a_group)
def test_leave_one_out_is_the_textbook_baseline(returns: Floats) -> None:
    """The textbook baseline is R_k - mean over j != k of R_j."""
    textbook = [value - np.delete(returns, k).mean() for k, value in enumerate(returns)]
    np.testing.assert_allclose(leave_one_out(returns, none_succeeded(returns)), textbook, atol=1e-12)


@pytest.mark.parametrize("name", ["leave_one_out", "group_mean"])
@given(returns=returns_of_a_group)
def test_advantages_sum_to_zero(name: str, returns: Floats) -> None:
    assert abs(ESTIMATORS[name](returns, none_succeeded(returns)).sum()) < 1e-9


@pytest.mark.parametrize("name", ["leave_one_out", "group_mean"])
@given(returns=returns_of_a_group, shift=st.floats(-10, 10))
def test_a_shift_of_all_returns_changes_nothing(name: str, returns: Floats, shift: float) -> None:
    flags = none_succeeded(returns)
    np.testing.assert_allclose(ESTIMATORS[name](returns + shift, flags), ESTIMATORS[name](returns, flags), atol=1e-12)


@given(st.floats(0, 1), st.integers(2, 9))
def test_equal_returns_give_exactly_zero(value: float, count: int) -> None:
    returns = np.full(count, value)
    for estimator in (leave_one_out, group_mean):
        advantages = estimator(returns, none_succeeded(returns))
        assert advantages.tolist() == [0.0] * count
        for kind in ("population", "sample"):
            assert divided_by_std(advantages, returns, kind).tolist() == [0.0] * count


@pytest.mark.parametrize("name", ["leave_one_out", "group_mean"])
@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_rollouts_are_refused(name: str, count: int) -> None:
    with pytest.raises(ValueError, match=f"at least 2 rollouts of the same task, found {count}"):
        ESTIMATORS[name](np.ones(count), np.ones(count, dtype=bool))


@pytest.mark.parametrize("kind", ["population", "sample"])
@given(returns=returns_of_a_group, unit=st.floats(0.1, 10), shift=st.floats(-10, 10))
def test_over_the_std_advantages_sum_to_zero_and_know_neither_unit_nor_origin(
    kind: StdKind, returns: Floats, unit: float, shift: float
) -> None:
    def found(values: Floats) -> Floats:
        return divided_by_std(group_mean(values, none_succeeded(values)), values, kind)

    assert abs(found(returns).sum()) < 1e-9
    np.testing.assert_allclose(found(unit * returns + shift), found(returns), atol=1e-9)
