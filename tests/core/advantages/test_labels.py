"""Labels of turns, pairs and whole batches by hand, and properties of all of them."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.core.advantages.estimators import ESTIMATORS, leave_one_out
from tasks.core.advantages.groups import AdvantageResult, compute_advantages
from tasks.core.advantages.labels import (
    PAIR_CHOICES,
    best_and_worst,
    sampled_pair,
    turn_progress,
    turn_progress_centred,
)
from tasks.core.advantages.outcomes import Outcomes
from tasks.core.config.advantages import AdvantageConfig, PairChoice

PROGRESS = [[0.25, 0.5, 1.0], [0.25, 0.25], [0.5, 0.75]]
RETURNS = np.array([1.0, 0.25, 0.0])
"""The third rollout lost its progress: it did not end by itself."""


def outcomes(
    *rows: tuple[str, float, bool], progress: list[list[float]] | None = None, tokens: list[int] | None = None
) -> Outcomes:
    return Outcomes(
        task_ids=[task for task, _, _ in rows],
        returns=np.array([found for _, found, _ in rows]),
        successes=np.array([success for _, _, success in rows]),
        end_reasons=["completed"] * len(rows),
        policy_tokens=np.ones(len(rows), dtype=np.int64) if tokens is None else np.array(tokens),
        turn_progress=None if progress is None else [np.array(row) for row in progress],
    )


def test_turn_advantages_by_hand() -> None:
    found = turn_progress(RETURNS, [np.array(row) for row in PROGRESS])
    # Returns-to-go: 1, 0.75, 0.5 | 0.25, 0 | 0, -0.5; no other rollout has a third turn.
    assert found[0].tolist() == pytest.approx([1 - 0.125, 0.75 + 0.25, 1 - 0.125])
    assert found[1].tolist() == pytest.approx([0.25 - 0.5, 0 - 0.125])
    assert found[2].tolist() == pytest.approx([0 - 0.625, -0.5 - 0.375])


def test_centred_turn_advantages_by_hand() -> None:
    found = turn_progress_centred(RETURNS, [np.array(row) for row in PROGRESS])
    # Returns-to-go, when a quarter of the tests pass before the first turn: 0.75, 0.75, 0.5 | 0, 0 | -0.25, -0.5.
    mean = (0.75 + 0.75 + 0.5 + 0 + 0 - 0.25 - 0.5) / 7
    expected = [[0.75 - mean, 0.75 - mean, 0.5 - mean], [-mean, -mean], [-0.25 - mean, -0.5 - mean]]
    assert [turns.tolist() for turns in found] == [pytest.approx(turns) for turns in expected]


def test_tests_that_the_untouched_world_passes_are_nobodys_merit() -> None:
    first, second = turn_progress_centred(np.array([0.5, 0.75]), [np.array([0.5, 0.5]), np.array([0.5, 0.75])])
    assert first.tolist() == pytest.approx([-0.125, -0.125])
    assert second.tolist() == pytest.approx([0.125, 0.125])


def test_centred_advantages_are_exactly_0_where_no_turn_gains() -> None:
    assert [turns.tolist() for turns in turn_progress_centred(np.zeros(2), [np.zeros(2), np.zeros(1)])] == [[0, 0], [0]]


shares = st.integers(0, 8).map(lambda count: count / 8)
groups = st.lists(st.tuples(shares, st.lists(shares, min_size=1, max_size=5)), min_size=2, max_size=6)


@given(groups)
def test_the_first_turns_have_the_rollouts_leave_one_out_advantage(group: list[tuple[float, list[float]]]) -> None:
    returns = np.array([total for total, _ in group])
    found = turn_progress(returns, [np.array(progress) for _, progress in group])
    whole = leave_one_out(returns, returns > 0)
    assert [turns[0] for turns in found] == pytest.approx(whole.tolist())
    assert [len(turns) for turns in found] == [len(progress) for _, progress in group]


@given(groups)
def test_advantages_of_a_turn_common_to_all_sum_to_0(group: list[tuple[float, list[float]]]) -> None:
    found = turn_progress(np.array([total for total, _ in group]), [np.array(progress) for _, progress in group])
    for turn in range(min(len(turns) for turns in found)):
        assert sum(turns[turn] for turns in found) == pytest.approx(0, abs=1e-12)


@given(groups, st.floats(-1, 1))
def test_tests_that_all_pass_from_the_start_change_no_later_turn(
    group: list[tuple[float, list[float]]], by: float
) -> None:
    """Shifting progress and returns changes only the first turn's return-to-go, by the same amount for all."""
    returns = np.array([total for total, _ in group])
    progress = [np.array(row) for _, row in group]
    plain, shifted = turn_progress(returns, progress), turn_progress(returns + by, [row + by for row in progress])
    for unshifted, moved in zip(plain, shifted, strict=True):
        assert moved.tolist() == pytest.approx(unshifted.tolist(), abs=1e-9)


def test_one_turn_with_a_signal_keeps_its_rollout() -> None:
    rows = [("a", 0.5, False), ("a", 0.5, False), ("b", 0.5, False), ("b", 0.5, False)]
    progress = [[0.5, 0.5], [0.0, 0.5], [0.0, 0.5], [0.0, 0.5]]
    result = run(rows, progress, estimator="turn_progress")
    assert result.kept.tolist() == [True, True, False, False]
    assert result.labels.turn_advantages is not None
    assert [turns.tolist() for turns in result.labels.turn_advantages[:2]] == [[0.0, -0.5], [0.0, 0.5]]


def run(
    rows: list[tuple[str, float, bool]],
    progress: list[list[float]] | None = None,
    tokens: list[int] | None = None,
    **config: object,
) -> AdvantageResult:
    found = outcomes(*rows, progress=progress, tokens=tokens)
    return compute_advantages(found, AdvantageConfig.model_validate(config))


def test_turn_credit_without_progress_names_the_knob_that_measures_it() -> None:
    with pytest.raises(ValueError, match=r"turn_progress needs turn_progress; set collection\.turn_progress: true"):
        run([("a", 1.0, True), ("a", 0.0, False)], estimator="turn_progress")


def test_a_pair_is_the_best_and_the_worst_if_they_are_far_enough_apart() -> None:
    rows = [("a", share, share == 1) for share in (0.5, 1.0, 0.0, 1.0)] + [("b", 0.5, False), ("b", 0.75, False)]
    result = run(rows, pair_gap=0.25, pair_choice="best_and_worst")
    assert result.labels.pairs is not None and result.labels.pairs.tolist() == [-1, 0, 0, -1, -1, -1]
    assert result.labels.advantages.tolist() == [0, 1, -1, 0, 0, 0]
    assert result.kept.tolist() == [False, True, True, False, False, False]
    nearer = run(rows, pair_gap=0.2, pair_choice="best_and_worst")
    assert nearer.kept.tolist() == [False, True, True, False, True, True]


def test_a_sampled_pair_is_any_of_the_tasks_pairs_alike_and_the_better_one_comes_first() -> None:
    """Over 1,000 seeds, each of six pairs occurs about 167 times (standard deviation 12)."""
    returns = np.array([0.25, 1.0, 0.0, 0.75])
    found = Counter(sampled_pair(returns, seed) for seed in range(1000))
    assert all(returns[better] > returns[worse] for better, worse in found)
    assert len(found) == 6 and all(110 < count < 225 for count in found.values())


def test_a_sampled_pair_trains_only_over_the_gap_and_with_tokens() -> None:
    rows = [
        ("a", 1.0, True),
        ("a", 0.5, False),
        ("b", 0.5, False),
        ("b", 0.5, False),
        ("c", 1.0, True),
        ("c", 0.0, False),
    ]
    result = run(rows, tokens=[3, 2, 4, 1, 5, 0], pair_gap=0.25)
    assert result.labels.pairs is not None and result.labels.pairs.tolist() == [0, 0, -1, -1, -1, -1]
    assert result.labels.advantages.tolist() == [1, -1, 0, 0, 0, 0]
    again = [run(rows * 3, pair_gap=0.0).kept.tolist() for _ in range(2)]
    assert again[0] == again[1]


@pytest.mark.parametrize("choice", PAIR_CHOICES)
def test_returns_that_differ_by_rounding_are_no_pair(choice: PairChoice) -> None:
    assert not run([("a", 0.1 + 0.2, False), ("a", 0.3, False)], pair_gap=0.0, pair_choice=choice).kept.any()
    assert best_and_worst(np.array([0.3, 0.1 + 0.2, 0.1, 0.3 - 0.2]), 0) == (0, 2)


def test_no_pair_with_a_gap_gives_an_empty_batch_with_a_note() -> None:
    result = run([("a", 0.5, False), ("a", 0.5, False)], pair_gap=0.0)
    assert not result.kept.any()
    assert result.summary.note is not None and "policy will stay" in result.summary.note


def test_all_or_nothing_rewards_success_alone_and_reports_the_share() -> None:
    rows = [("a", 0.75, False), ("a", 1.0, True), ("b", 0.5, False), ("b", 0.0, False)]
    result = run(rows, returns="all_or_nothing")
    assert result.labels.advantages.tolist() == [-1, 1, 0, 0]
    assert result.kept.tolist() == [True, True, False, False]
    assert (result.summary.mean_return, result.summary.mixed_groups) == (pytest.approx(2.25 / 4), 0.5)


def test_shuffled_returns_are_those_of_other_finished_rollouts_whatever_the_task() -> None:
    rows = [(task, count / 8, count == 8) for count, task in enumerate("aabbccddd")]
    found = replace(outcomes(*rows), end_reasons=["completed"] * 8 + ["world_fault"])
    shuffled = found.rewarded("shuffled", seed=3)
    assert sorted(shuffled.returns) == sorted(found.returns) and shuffled.returns.tolist() != found.returns.tolist()
    assert (shuffled.returns[8], shuffled.successes[8]) == (1.0, True)
    assert (shuffled.returns == 1).tolist() == shuffled.successes.tolist()
    assert shuffled.returns.tolist() == found.rewarded("shuffled", seed=3).returns.tolist()
    assert shuffled.returns.tolist() != found.rewarded("shuffled", seed=4).returns.tolist()


def test_shuffled_returns_label_and_the_earned_ones_are_reported() -> None:
    rows = [("a", 1.0, True)] * 6 + [("b", 0.0, False)] * 6
    result = run(rows, returns="shuffled")
    assert set(result.labels.advantages.tolist()) != {0.0}
    assert result.labels.advantages.sum() == pytest.approx(0)
    assert (result.summary.mean_return, result.summary.success_rate) == (0.5, 0.5)
    assert not run(rows).kept.any()


def test_a_batch_is_normalised_over_the_tokens_of_its_tasks_by_hand() -> None:
    """1 in 6 + 2 + 1 tokens and 0 in 1 + 2: mean 3/4, sample variance 3/16 * 12/11; over rollouts the mean is 3/5."""
    rows = [("a", 1.0, True), ("a", 0.0, False), ("b", 1.0, True), ("b", 1.0, True), ("b", 0.0, False)]
    result = run(rows, tokens=[6, 1, 2, 1, 2], estimator="episode_return", normalise_over_batch=True)
    std = (3 / 16 * 12 / 11) ** 0.5
    by_hand = [0.25 / std, -0.75 / std, 0.25 / std, 0.25 / std, -0.75 / std]
    assert result.labels.advantages.tolist() == pytest.approx(by_hand)


def test_a_long_rollout_flips_the_sign_of_a_middling_rollout() -> None:
    """Over rollouts the mean is 0.5, over tokens 0.1: the rollout with 0.4 is better than the batch's average token."""
    rows = [("a", 1.0, True), ("a", 0.4, False), ("a", 0.1, False)]
    result = run(rows, tokens=[1, 1, 98], estimator="episode_return", normalise_over_batch=True)
    assert result.labels.advantages[1] > 0


def test_a_single_rollout_is_kept_where_its_label_needs_no_others() -> None:
    rows = [("a", 1.0, True), ("a", 0.5, False), ("lone", 1.0, True)]
    result = run(rows, estimator="success")
    assert result.labels.advantages.tolist() == [1, 0, 1] and result.kept.tolist() == [True, False, True]
    assert result.summary.model_dump()["dropped_lone_rollouts"] == 0
    assert (result.summary.groups, result.summary.group_return_std) == (1, pytest.approx(0.125**0.5))
    assert run(rows, estimator="episode_return", min_absolute_advantage=0.0).kept.all()
    over_batch = run(rows, estimator="episode_return", normalise_over_batch=True)
    assert over_batch.labels.advantages.tolist() == pytest.approx([3**-0.5, -2 * 3**-0.5, 3**-0.5])
    for compared in ({"divide_by_std": "sample"}, {"top_variance_share": 0.5}, {"variance_share_of": "mass"}):
        assert not run(rows, estimator="episode_return", **compared).kept[2]
    assert not run(rows, pair_gap=0.0, estimator="success").kept[2]


@given(st.lists(shares, min_size=2, max_size=8))
def test_grpo_without_std_times_k_over_k_minus_1_is_loop(group: list[float]) -> None:
    returns, count = np.array(group), len(group)
    centred = ESTIMATORS["group_mean"](returns, returns == 1)
    loop = ESTIMATORS["leave_one_out"](returns, returns == 1)
    assert (centred * count / (count - 1)).tolist() == pytest.approx(loop.tolist())
    exact = [own - (sum(group) - own) / (count - 1) for own in group]
    assert loop.tolist() == pytest.approx(exact, abs=1e-12)
