"""Parquet artifacts: what is written is read back, and every broken rule names file, row and rule."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.core.records.files import ArtifactError
from tasks.core.records.schemas import ROLLOUTS, SCORED_ROLLOUTS, TASKS, TRAINING_BATCH
from tasks.core.records.tables import read_table, table_of, write_rows, write_table
from tests.finished_run import played_row

Row = dict[str, Any]


def rollout(task: str = "t1", index: int = 0, **changes: Any) -> Row:
    turn = {"failed": False, "code_blocks": 1, "api_calls": ["notes.add"], "failed_api_calls": []}
    row = played_row(task, "s1", "train", 0.5, index, tests_passed=["a"], tests_failed=["b"], turns=[turn, dict(turn)])
    row |= {"token_ids": [5, 6, 7, 8, 9], "policy_mask": [False, True, True, False, True], "seed": 2**62}
    row |= {"turn_index": [-1, 0, 0, -1, 1], "engine_logprobs": [0.0, -0.5, -1.0, 0.0, -2.0], "difficulty": 1}
    return row | {"staleness": 0} | changes


def batch_row(**changes: Any) -> Row:
    whole = rollout(**changes) | {"advantage": 0.25} | changes
    return {name: whole[name] for name in TRAINING_BATCH.names if name in whole}


@pytest.mark.parametrize("trusted", [False, True])
def test_a_column_that_is_there_twice_is_refused_by_name(tmp_path: Path, trusted: bool) -> None:
    table = write_rows(tmp_path / "r.parquet", [rollout()], ROLLOUTS)
    pq.write_table(table.append_column("seed", table["seed"]), tmp_path / "r.parquet")
    with pytest.raises(ArtifactError, match=r"r\.parquet: column seed: there is more than one; delete it"):
        read_table(tmp_path / "r.parquet", ROLLOUTS, trusted=trusted)


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    rows = [
        rollout(index=0),
        rollout(index=1, token_ids=[], policy_mask=[], turn_index=[], engine_logprobs=[], turns=[]),
    ]
    table = write_rows(tmp_path / "r.parquet", rows, ROLLOUTS)
    assert read_table(tmp_path / "r.parquet", ROLLOUTS).equals(table)
    assert table.to_pylist() == rows


@pytest.mark.parametrize("schema", [TASKS, ROLLOUTS, SCORED_ROLLOUTS, TRAINING_BATCH])
def test_an_empty_table_is_an_artifact_too(schema: pa.Schema, tmp_path: Path) -> None:
    write_rows(tmp_path / "r.parquet", [], schema)
    assert read_table(tmp_path / "r.parquet", schema).num_rows == 0


@pytest.mark.parametrize("end", ["world_fault", "cut_by_early_stop"])
def test_a_void_rollout_may_end_in_a_turn_without_an_answer(end: str, tmp_path: Path) -> None:
    void = rollout(end_reason=end, tests_passed=[], tests_failed=[], **{"return": 0.0})
    write_rows(tmp_path / "r.parquet", [void | {"turns": void["turns"][:1]}], ROLLOUTS)
    with pytest.raises(ArtifactError, match="turn 1 of a rollout with 0 turns"):
        write_rows(tmp_path / "r.parquet", [void | {"turns": []}], ROLLOUTS)


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    rows = [rollout(index=index) for index in range(6)]
    write_rows(tmp_path / "a.parquet", rows, ROLLOUTS)
    write_rows(tmp_path / "b.parquet", copy.deepcopy(rows), ROLLOUTS)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_rewards_of_turns_are_a_column_only_where_a_world_gives_them(tmp_path: Path) -> None:
    path = tmp_path / "r.parquet"
    write_rows(path, [rollout(index=0, turn_rewards=[-0.1, 1.0]), rollout(index=1)], ROLLOUTS)
    assert read_table(path, ROLLOUTS)["turn_rewards"].to_pylist() == [[-0.1, 1.0], [0.0, 0.0]]
    write_rows(path, [rollout()], ROLLOUTS)
    assert "turn_rewards" not in pq.read_schema(path).names


@pytest.mark.parametrize(
    ("rewards", "message"), [([1.0], "1 values for 2 turns"), ([0.0, np.inf], "not a finite number")]
)
def test_a_broken_reward_is_named(rewards: list[float], message: str, tmp_path: Path) -> None:
    rows = [rollout(index=0, turn_rewards=[0.0, 0.0]), rollout(index=1, turn_rewards=rewards)]
    with pytest.raises(ArtifactError, match=rf"r\.parquet: row 1, column turn_rewards: {message}"):
        write_rows(tmp_path / "r.parquet", rows, ROLLOUTS)


BROKEN_ROLLOUTS = [
    ({"return": 1.5}, "row 1, column return: 1.5 breaks in_range(0, 1)"),
    ({"return": float("nan")}, "row 1, column return: nan breaks in_range(0, 1)"),
    ({"return": None}, "row 1, column return"),
    ({"difficulty": 4}, "row 1, column difficulty: 4 breaks in_range(1, 3)"),
    ({"end_reason": "tired"}, "row 1, column end_reason: tired breaks isin"),
    ({"split": "holdout"}, "row 1, column split: holdout breaks isin"),
    ({"rollout_index": -1}, "row 1, column rollout_index: -1 breaks greater_than_or_equal_to(0)"),
    ({"rollout_index": 0}, "row 1: repeats (task_id, rollout_index) = ('t1', 0) of row 0"),
    ({"turn_index": [-1, 0, 0, -1]}, "row 1, column turn_index: 4 values for 5 token_ids"),
    ({"turn_index": [-1, 0, 0, 1, 1]}, "row 1, column turn_index, token 3: turn_index is 0 or more exactly where"),
    ({"turn_index": [-2, 0, 0, -1, 1]}, "row 1, column turn_index, token 0: turn_index is 0 or more exactly where"),
    ({"turn_index": [-1, 1, 1, -1, 0]}, "row 1, column turn_index, token 4: turn_index does not fall"),
    ({"turn_index": [-1, 0, 0, -1, 2]}, "row 1, column turn_index: turn 2 of a rollout with 2 turns"),
    ({"sequence_begins": []}, "row 1, column sequence_begins: []: must begin with 0 and rise within the row's"),
    ({"sequence_begins": [1, 3]}, "row 1, column sequence_begins: [1, 3]: must begin with 0"),
    ({"sequence_begins": [0, 3, 3]}, "row 1, column sequence_begins: [0, 3, 3]: must begin with 0 and rise"),
    ({"sequence_begins": [0, 5]}, "row 1, column sequence_begins: [0, 5]: must begin with 0 and rise"),
    (
        {"sequence_begins": [0, 1, 3]},
        "row 1, column sequence_begins: [0, 1, 3]: a sequence in which the policy sampled",
    ),
    ({"sequence_begins": [0, 4]}, "row 1, column policy_mask: the first token of a sequence is marked as sampled"),
    ({"token_ids": [5, -6, 7, 8, 9]}, "row 1, column token_ids, token 1: a token id is not negative"),
    ({"token_ids": [5, None, 7, 8, 9]}, "row 1, column token_ids: null is not allowed"),
    ({"engine_logprobs": [0.0, 0.5, -1, 0, -2]}, "row 1, column engine_logprobs, token 1: a log-prob is finite"),
    ({"engine_logprobs": [0.0, -0.5, -1, 0, float("nan")]}, "row 1, column engine_logprobs, token 4: a log-prob is"),
    ({"engine_logprobs": [0.0, -0.5, float("-inf"), 0, -1]}, "row 1, column engine_logprobs, token 2: a log-prob is"),
    ({"engine_logprobs": [-1.0, -0.5, -1, 0, -1]}, "row 1, column engine_logprobs, token 0: the log-prob of a token"),
    ({"end_reason": "execution_timeout"}, "row 1, column return: must be 0, the episode ended by execution_timeout"),
    (
        {"end_reason": "world_fault", "return": 0.0, "success": True, "tests_failed": []},
        "row 1, column success: true, but nothing was left to judge",
    ),
    ({"success": True}, "row 1, column success: true, but"),
    ({"success": True, "tests_passed": [], "tests_failed": []}, "row 1, column success: true, but"),
    ({"tests_passed": [None]}, "row 1, column tests_passed: null is not allowed"),
    ({"turns": [{"failed": None, "code_blocks": 1, "api_calls": [], "failed_api_calls": []}]}, "row 1, column turns"),
]


@pytest.mark.parametrize(("changes", "message"), BROKEN_ROLLOUTS)
def test_a_broken_rollout_is_refused_when_written_and_when_read(changes: Row, message: str, tmp_path: Path) -> None:
    rows, path = [rollout(), rollout(index=1) | changes, rollout(index=2)], tmp_path / "r.parquet"
    with pytest.raises(ArtifactError) as refused:
        write_rows(path, rows, ROLLOUTS)
    assert f"{path}: {message}" in str(refused.value)
    assert list(tmp_path.iterdir()) == []
    pq.write_table(table_of(rows, ROLLOUTS), path)
    with pytest.raises(ArtifactError) as refused:
        read_table(path, ROLLOUTS)
    assert f"{path}: {message}" in str(refused.value)


BROKEN_LABELS = [
    ({"turn_advantages": [0.5]}, "row 1, column turn_advantages: 1 values, too few for its turns"),
    ({"turn_advantages": [0.5, float("nan")]}, "row 1, column turn_advantages: not a finite number"),
    ({"turn_advantages": [0.5, None]}, "row 1, column turn_advantages: null is not allowed"),
    ({"pair": None}, "row 1, column pair: null is not allowed"),
    ({"pair": -1}, "row 1, column pair: -1 breaks greater_than_or_equal_to(0)"),
    ({"pair": 1}, "row 0, column pair: pair 0 is not one positive and one negative advantage"),
    ({"advantage": 1.0}, "row 0, column pair: pair 0 is not one positive and one negative advantage"),
]


@pytest.mark.parametrize(("changes", "message"), BROKEN_LABELS)
def test_broken_labels_of_turns_and_pairs_are_refused(changes: Row, message: str, tmp_path: Path) -> None:
    labels = {"pair": 0, "turn_advantages": [0.5, -0.5]}
    rows = [batch_row() | labels, batch_row(rollout_index=1, advantage=-1.0) | labels]
    table = write_rows(tmp_path / "b.parquet", rows, TRAINING_BATCH)
    assert read_table(tmp_path / "b.parquet", TRAINING_BATCH).to_pylist() == table.to_pylist()
    with pytest.raises(ArtifactError) as refused:
        write_rows(tmp_path / "c.parquet", [rows[0], rows[1] | changes], TRAINING_BATCH)
    assert message in str(refused.value)


def test_equal_wrong_values_are_found_in_their_own_rows(tmp_path: Path) -> None:
    rows = [rollout(index=index, **{"return": value}) for index, value in enumerate([0.0, 2.0, 0.5, 2.0])]
    with pytest.raises(ArtifactError, match=r"(?s)row 1, column return.*row 3, column return"):
        write_rows(tmp_path / "r.parquet", rows, ROLLOUTS)


def test_one_scored_rollout_may_occur_once_for_each_policy_and_run(tmp_path: Path) -> None:
    rows = [rollout() | {"policy": policy, "evaluation_run": run} for policy in ("base", "selected") for run in (0, 1)]
    write_rows(tmp_path / "s.parquet", rows, SCORED_ROLLOUTS)
    with pytest.raises(ArtifactError, match=r"row 4: repeats .* of row 2"):
        write_rows(tmp_path / "s.parquet", [*rows, dict(rows[2])], SCORED_ROLLOUTS)


@pytest.mark.parametrize("advantage", [float("inf"), float("nan")])
def test_an_advantage_is_a_finite_number(advantage: float, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="row 0, column advantage"):
        write_rows(tmp_path / "b.parquet", [batch_row(advantage=advantage)], TRAINING_BATCH)


def test_a_training_rollout_without_policy_tokens_is_refused(tmp_path: Path) -> None:
    silent = {"policy_mask": [False] * 5, "turn_index": [-1] * 5, "engine_logprobs": [0.0] * 5}
    empty = {"token_ids": [], "policy_mask": [], "turn_index": [], "engine_logprobs": []}
    for row, changes in ((1, silent), (1, empty)):
        with pytest.raises(ArtifactError, match=f"row {row}, column policy_mask: a training rollout has"):
            write_rows(tmp_path / "b.parquet", [batch_row(), batch_row(index=1, **changes)], TRAINING_BATCH)


def test_task_weights_sum_to_one(tmp_path: Path) -> None:
    tasks = [{"task_id": f"t{i}", "scenario_id": "s", "difficulty": 1, "weight": 0.4} for i in range(2)]
    with pytest.raises(ArtifactError, match=r"column weight: the weights sum to 0\.8"):
        write_rows(tmp_path / "t.parquet", tasks, TASKS)


def test_missing_unknown_and_mistyped_columns_are_named(tmp_path: Path) -> None:
    table = table_of([rollout()], ROLLOUTS)
    altered = table.drop(["return"]).append_column("score", pa.array([1.0]))
    altered = altered.set_column(3, "difficulty", pa.array([1], pa.int64()))
    with pytest.raises(ArtifactError) as refused:
        write_table(tmp_path / "r.parquet", altered, ROLLOUTS)
    for expected in ("missing column: return", "unknown column: score", "column difficulty: Int64 breaks dtype"):
        assert expected in str(refused.value)


def test_a_value_of_the_wrong_kind_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"r\.parquet: .*"):
        write_rows(tmp_path / "r.parquet", [rollout(difficulty="easy")], ROLLOUTS)


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"r\.parquet: missing; run the stage that writes it \(`dvc repro`\)"):
        read_table(tmp_path / "r.parquet", ROLLOUTS)


@pytest.mark.parametrize("kept_share", [0.0, 0.3, 0.99])
def test_a_truncated_file_is_refused(kept_share: float, tmp_path: Path) -> None:
    path = tmp_path / "r.parquet"
    write_rows(path, [rollout()], ROLLOUTS)
    path.write_bytes(path.read_bytes()[: int(kept_share * path.stat().st_size)])
    with pytest.raises(ArtifactError, match=r"r\.parquet: damaged parquet"):
        read_table(path, ROLLOUTS)


def test_any_flipped_byte_of_the_data_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    tasks = [{"task_id": f"t{i}", "scenario_id": "s", "difficulty": 1, "weight": 0.5} for i in range(2)]
    written = write_rows(path, tasks, TASKS)
    whole = path.read_bytes()
    for position in range(0, len(whole), 7):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        _same_or_refused(path, written)


def _same_or_refused(path: Path, written: pa.Table) -> None:
    try:
        assert read_table(path, TASKS).equals(written)
    except ArtifactError as error:
        assert str(path) in str(error)


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.parquet"
    write_rows(path, [rollout()], ROLLOUTS)
    before = path.read_bytes()
    with pytest.raises(ArtifactError):
        write_rows(path, [rollout(**{"return": 2.0})], ROLLOUTS)
    monkeypatch.setattr(pq, "write_table", _disk_full(pq.write_table))
    with pytest.raises(OSError, match="No space left"):
        write_rows(path, [rollout(index=3)], ROLLOUTS)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["r.parquet"]


def _disk_full(write: Callable[..., None]) -> Callable[..., None]:
    def half_written(table: pa.Table, where: Path, **options: Any) -> None:
        write(table, where, **options)
        where.write_bytes(where.read_bytes()[:100])
        raise OSError("No space left on device")

    return half_written


def test_token_rules_hold_for_slices_and_chunks(tmp_path: Path) -> None:
    whole = table_of([rollout(index=i) for i in range(6)], ROLLOUTS)
    broken = table_of([rollout(index=9, engine_logprobs=[0, -1, np.nan, 0, -1])], ROLLOUTS)
    table = pa.concat_tables([whole.slice(2, 3), whole.slice(0, 1), broken])
    with pytest.raises(ArtifactError, match="row 4, column engine_logprobs, token 2"):
        write_table(tmp_path / "r.parquet", table, ROLLOUTS)
