"""Figures of responses, on token ids worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.filter_advantages import distinct_share, repetition, response_stats

ids = st.lists(st.integers(0, 3), max_size=12)


def test_repetition_is_the_share_of_4_grams_that_were_there_before() -> None:
    """1 2 3 4 1 2 3 4: five 4-grams, of which 1234 occurs twice: 1 - 4/5. Seven equal tokens: 1 - 1/4."""
    assert repetition([1, 2, 3, 4, 1, 2, 3, 4]) == pytest.approx(0.2)
    assert repetition([5] * 7) == 0.75
    assert repetition([1, 2, 3]) == repetition([]) == 0


@given(ids, st.permutations(range(4)))
def test_repetition_does_not_depend_on_the_tokens_identities(response: list[int], names: list[int]) -> None:
    assert repetition([names[token] for token in response]) == repetition(response)
    assert 0 <= repetition(response) < 1


@given(st.lists(ids, min_size=1, max_size=6))
def test_equal_responses_count_as_one_and_a_new_one_never_lowers_the_count(group: list[list[int]]) -> None:
    assert distinct_share([group[0]] * len(group)) == pytest.approx(1 / len(group))
    assert 1 / len(group) <= distinct_share(group) <= 1
    assert distinct_share([*group, [9]]) * (len(group) + 1) == pytest.approx(distinct_share(group) * len(group) + 1)


def test_an_iteration_is_the_mean_over_rollouts_and_over_tasks() -> None:
    """Lengths 2, 2, 2, 7, 4: 3.4. Repetition 0, 0, 0, 0.75, 0. Task a: 2 of 3 differ; b with 1 of 1 is no group."""
    figures = response_stats([[1, 2], [1, 2], [2, 1], [5] * 7, [1, 2, 3, 4]], ["a", "a", "a", "b", "c"])
    assert figures.length == pytest.approx(3.4)
    assert figures.repetition == pytest.approx(0.15)
    assert figures.distinct == pytest.approx(2 / 3)


def test_one_rollout_per_task_has_only_different_ones() -> None:
    assert response_stats([[1], [1]], ["a", "b"]).distinct == 1
