from pathlib import Path
from typing import Any

import pytest

from tasks.core.config.advantages import AdvantageConfig
from tasks.core.config.params import Params
from tasks.core.config.stage_inputs import AdvantageInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.learner.packing import read_rollouts
from tasks.core.records.documents import read_document, write_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.records.schemas import ROLLOUTS, TRAINING_BATCH
from tasks.core.records.tables import read_table, write_rows
from tasks.core.records.training import AdvantageSummary
from tasks.filter_advantages import filter_advantages
from tests.finished_run import played_row, timings

GROUPS = {
    "mixed": [(1.0, "completed"), (0.5, "completed"), (0.0, "turn_limit"), (0.5, "completed")],
    "equal": [(0.25, "completed"), (0.25, "completed")],
    "lone": [(1.0, "completed"), (0.0, "world_fault"), (0.0, "cut_by_early_stop")],
}


def rollout(task: str, index: int, episode_return: float, end_reason: str) -> dict[str, Any]:
    tokens = {"token_ids": [5, 6, 7 + index], "policy_mask": [False, True, True], "turn_index": [-1, 0, 0]}
    more = {"engine_logprobs": [0.0, -0.5, -0.25], "end_reason": end_reason, "difficulty": 1, "staleness": 0}
    return played_row(task, task, "train", episode_return, index, tests_failed=[], **tokens, **more)


def run(
    root: Path, groups: dict[str, list[tuple[float, str]]], **advantages: Any
) -> tuple[list[Any], AdvantageSummary]:
    params = Params(iterations=1, advantages=AdvantageConfig(**advantages))
    context = StageContext(Layout(root), AdvantageInputs.of(params), "i001")
    rows = [rollout(task, index, *outcome) for task, group in groups.items() for index, outcome in enumerate(group)]
    write_rows(context.layout.rollouts("i001"), rows, ROLLOUTS)
    filter_advantages(context)
    batch = read_table(context.layout.training_batch("i001"), TRAINING_BATCH).to_pylist()
    return batch, read_document(context.layout.advantage_summary("i001"), AdvantageSummary)


def test_only_rollouts_with_a_signal_train(tmp_path: Path) -> None:
    batch, summary = run(tmp_path, GROUPS)
    assert [(row["task_id"], row["rollout_index"]) for row in batch] == [("mixed", 0), ("mixed", 2)]
    assert [row["advantage"] for row in batch] == pytest.approx([2 / 3, -2 / 3])
    assert batch[1]["token_ids"] == [5, 6, 9]
    assert summary.model_dump() == {
        "mean_return": pytest.approx(3.5 / 7),
        "group_return_std": pytest.approx((1 / 6) ** 0.5 / 2),
        "rollouts": 9,
        "finished_rollouts": 7,
        "kept_rollouts": 2,
        "end_reasons": {"completed": 6, "cut_by_early_stop": 1, "turn_limit": 1, "world_fault": 1},
        "responses": {"length": 2.0, "repetition": 0.0, "distinct": 1.0},
        "note": None,
        "success_rate": pytest.approx(2 / 7),
        "groups": 2,
        "mixed_groups": 0.5,
        "left_out_groups": 1,
        "lost_rollouts": 1,
        "shrunk_groups": 1,
        "dropped_low_variance_group": 0,
        "dropped_small_advantage": 4,
        "dropped_without_tokens": 0,
        "dropped_lone_rollouts": 1,
    }


def test_void_rollouts_are_no_baseline_for_the_others(tmp_path: Path) -> None:
    batch, _ = run(tmp_path, {"a": [(1.0, "completed"), (0.0, "completed"), (0.0, "world_fault")]})
    assert [row["advantage"] for row in batch] == [1.0, -1.0]


def test_every_rollout_is_counted_once(tmp_path: Path) -> None:
    groups = {**GROUPS, "other": [(1.0, "completed"), (0.9, "completed")]}
    batch, summary = run(tmp_path, groups, top_variance_share=0.3)
    dropped = sum(count for name, count in summary.model_dump().items() if name.startswith("dropped_"))
    assert len(batch) + dropped == summary.finished_rollouts
    assert {row["task_id"] for row in batch} == {"mixed"}
    assert summary.model_dump()["dropped_low_variance_group"] == 4


def test_groups_that_are_dropped_by_mass_are_counted_as_those_by_number(tmp_path: Path) -> None:
    """LOOP's advantages. Stds 1/sqrt 6, 0.05 sqrt 2 and 0: the first is 85% of their sum, the first two are all of it.

    A single rollout is in no group.
    """
    groups = {**GROUPS, "other": [(1.0, "completed"), (0.9, "completed")]}
    for share, kept, dropped in ((0.8, {"mixed"}, 4), (0.9, {"mixed", "other"}, 2), (1.0, {"mixed", "other"}, 2)):
        batch, summary = run(tmp_path / str(share), groups, top_variance_share=share, variance_share_of="mass")
        assert {row["task_id"] for row in batch} == kept
        counts = summary.model_dump()
        assert (counts["dropped_low_variance_group"], counts["dropped_lone_rollouts"]) == (dropped, 1)
        everywhere = sum(count for name, count in counts.items() if name.startswith("dropped_"))
        assert len(batch) + everywhere == summary.finished_rollouts


def test_no_mass_gives_an_empty_batch_with_a_note(tmp_path: Path) -> None:
    critic = {"estimator": "episode_return", "min_absolute_advantage": 0.0, "variance_share_of": "mass"}
    batch, summary = run(tmp_path, {"equal": GROUPS["equal"]}, **critic)
    assert batch == [] and summary.model_dump()["dropped_low_variance_group"] == 2
    assert summary.note == "the returns of no group vary: the policy will stay as it is"


def test_division_by_the_groups_std_is_a_setting(tmp_path: Path) -> None:
    for kind, variance in (("population", 1 / 8), ("sample", 1 / 6)):
        batch, _ = run(tmp_path / kind, GROUPS, divide_by_std=kind)
        assert batch[0]["advantage"] == pytest.approx((2 / 3) / variance**0.5)


def test_all_advantages_zero_gives_an_empty_batch_with_a_note(tmp_path: Path) -> None:
    batch, summary = run(tmp_path, {"equal": GROUPS["equal"]})
    assert batch == []
    assert summary.kept_rollouts == 0
    assert summary.note is not None and "policy will stay" in summary.note


def test_only_void_rollouts_is_an_error_that_names_file_and_reasons(tmp_path: Path) -> None:
    void = {"a": [(0.0, "world_fault"), (0.0, "world_fault")]}
    with pytest.raises(ArtifactError, match=r"rollouts\.parquet: .*all 2 rollouts are void \(world_fault: 2\)$"):
        run(tmp_path, void)
    faults = {"no table is free": 1, "the referee has left": 3}
    write_document(Layout(tmp_path).timings("i001"), timings(world_faults=faults))
    with pytest.raises(ArtifactError, match=r"\(world_fault: 2\); most often \(3 times\): the referee has left$"):
        run(tmp_path, void)
    assert not Layout(tmp_path).training_batch("i001").exists()


@pytest.mark.parametrize(
    "config", [{"min_absolute_advantage": 0.0}, {"estimator": "episode_return", "normalise_over_batch": True}]
)
def test_a_rollout_whose_opening_was_too_long_trains_nothing_and_is_counted(
    config: dict[str, Any], tmp_path: Path
) -> None:
    nothing = {"policy_mask": [False] * 3, "turn_index": [-1] * 3, "engine_logprobs": [0.0] * 3, "turns": []}
    rows = [rollout("a", index, 1.0 - index, "completed") for index in range(2)]
    rows += [rollout("long", index, 0.0, "context_limit") | nothing for index in range(2)]
    params = Params(iterations=1, advantages=AdvantageConfig(**config))
    context = StageContext(Layout(tmp_path), AdvantageInputs.of(params), "i001")
    write_rows(context.layout.rollouts("i001"), rows, ROLLOUTS)
    filter_advantages(context)
    batch = read_table(context.layout.training_batch("i001"), TRAINING_BATCH)
    assert batch["task_id"].to_pylist() == ["a", "a"]
    summary = read_document(context.layout.advantage_summary("i001"), AdvantageSummary)
    assert (summary.kept_rollouts, summary.finished_rollouts) == (2, 4)
    assert summary.model_dump()["dropped_without_tokens"] == 2


def test_rewards_of_turns_go_with_the_batch(tmp_path: Path) -> None:
    rewards = {0: [0.5], 1: [-0.1]}
    rows = [rollout("a", index, 1.0 - index, "completed") | {"turn_rewards": given} for index, given in rewards.items()]
    params = Params(iterations=1)
    context = StageContext(Layout(tmp_path), AdvantageInputs.of(params), "i001")
    write_rows(context.layout.rollouts("i001"), rows, ROLLOUTS)
    filter_advantages(context)
    batch = read_table(context.layout.training_batch("i001"), TRAINING_BATCH)
    assert batch["turn_rewards"].to_pylist() == list(rewards.values())
    assert [made.turn_rewards.tolist() for made in read_rollouts(batch) if made.turn_rewards is not None] == [
        [0.5],
        [-0.1],
    ]


def test_a_share_of_the_groups_or_of_the_mass_keeps_the_widest(tmp_path: Path) -> None:
    """Groups have std 0.5 and 0.25: half of the groups is one group, and so is two thirds of the mass."""
    groups = {"wide": [(1.0, "completed"), (0.0, "completed")], "narrow": [(0.5, "completed"), (0.0, "completed")]}
    for of, share, kept in (
        ("groups", 1.0, 4),
        ("groups", 0.5, 2),
        ("mass", 1.0, 4),
        ("mass", 0.7, 4),
        ("mass", 0.6, 2),
    ):
        batch, _ = run(tmp_path / f"{of}-{share}", groups, top_variance_share=share, variance_share_of=of)
        assert len(batch) == kept
        assert {row["task_id"] for row in batch} >= {"wide"}
