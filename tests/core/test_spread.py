"""Numbers that differ by rounding alone, and whitened batches."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.core.spread import ROUNDING, are_equal, rounded, whiten

rewards = st.lists(st.sampled_from([-0.1, 0.1, 0.2, 0.3, -1.0, 10.0, 1 / 3]), min_size=1, max_size=12)


@given(rewards, st.randoms(use_true_random=False))
def test_one_sum_in_any_order_is_equal(terms: list[float], random: object) -> None:
    sums = []
    for _ in range(8):
        random.shuffle(terms)  # type: ignore[attr-defined]
        sums.append(sum(terms))
    assert are_equal(sums)


@pytest.mark.parametrize(
    ("values", "equal"),
    [([0.5], True), ([0.1 + 0.2, 0.3], True), ([0.0, 2 * ROUNDING], False), ([1e4, 1e4 + 1e-6], True), ([1, 2], False)],
)
def test_values_that_count_as_equal(values: list[float], equal: bool) -> None:
    assert are_equal(values) is equal and are_equal(np.array(values)) is equal


def test_rounded_values_that_were_equal_are_a_tie() -> None:
    assert len(set(rounded(np.array([0.1 + 0.2, 0.3, 0.3 - 1e-16])).tolist())) == 1


values = st.lists(st.integers(0, 8).map(lambda count: count / 8), min_size=2, max_size=12)


@given(values, st.floats(-10, 10))
def test_a_whitened_batch_has_mean_0_and_variance_1_wherever_it_lies(batch: list[float], by: float) -> None:
    found = whiten(np.array(batch))
    assert found.sum() == pytest.approx(0, abs=1e-9)
    assert found.var(ddof=1) == pytest.approx(1 if len(set(batch)) > 1 else 0, rel=1e-5)
    assert whiten(np.array(batch) + by).tolist() == pytest.approx(found.tolist(), abs=1e-6)


@given(st.lists(st.tuples(st.integers(0, 8).map(lambda count: count / 8), st.integers(0, 5)), min_size=1, max_size=9))
def test_a_count_is_as_many_values(batch: list[tuple[float, int]]) -> None:
    numbers, counts = np.array([value for value, _ in batch]), np.array([count for _, count in batch])
    spread = whiten(np.repeat(numbers, counts)) if counts.any() else np.zeros(0)
    assert np.repeat(whiten(numbers, counts), counts).tolist() == pytest.approx(spread.tolist())
