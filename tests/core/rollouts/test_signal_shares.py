from pathlib import Path
from typing import Any

import pytest

from tasks.collect_rollouts import collect_rollouts, plan_iteration
from tasks.core.config.dag import previous_map
from tasks.core.config.stage_inputs import CollectionInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.interfaces.world_kind import open_world
from tasks.core.records.files import ArtifactError
from tasks.core.records.schemas import ROLLOUTS
from tasks.core.records.tables import read_table, write_rows
from tasks.core.rollouts.iteration import rollouts_seen, signal_shares
from tasks.core.signal_coverage import coverage


def drawn(context: StageContext[CollectionInputs], key: str, **knobs: Any) -> list[str]:
    inputs = context.inputs.model_copy(update=knobs)
    world = open_world(inputs.world, context.layout.world)
    return [rollout.task.task_id for rollout in plan_iteration(world, context.layout, inputs, key)]


@pytest.fixture
def solved_half(context: StageContext[CollectionInputs]) -> str:
    """A task of which iteration 1 solved every second rollout; of the others it solved none."""
    collect_rollouts(context)
    path = context.layout.rollouts("i001")
    rows = read_table(path, ROLLOUTS).to_pylist()
    name = str(rows[0]["task_id"])
    for row in rows:
        row["end_reason"] = "completed"
        row["success"] = row["task_id"] == name and row["rollout_index"] % 2 == 0
        row["return"], row["tests_failed"] = float(row["success"]), []
    write_rows(path, rows, ROLLOUTS)
    return name


def test_before_any_rollout_tasks_are_drawn_by_their_weights(context: StageContext[CollectionInputs]) -> None:
    assert drawn(context, "i001", task_drawing="coverage") == drawn(context, "i001")


def test_tasks_solved_now_and_then_are_drawn_more_often(
    context: StageContext[CollectionInputs], solved_half: str
) -> None:
    layout, previous = context.layout, context.inputs.previous
    played = dict.fromkeys(drawn(context, "i001"))
    shares = signal_shares(layout, previous, "i002", [*played, "never"], 4)
    by_hand = coverage([2 if name == solved_half else 0 for name in played] + [0], [4] * len(played) + [0]).by_task(4)
    assert list(shares.values()) == pytest.approx(by_hand.tolist())
    assert max(shares, key=lambda name: shares[name]) == solved_half
    times = {
        how: sum(solved_half in drawn(context, "i002", task_drawing=how, seed=seed) for seed in range(40))
        for how in ("weighted", "coverage")
    }
    assert times["coverage"] > times["weighted"]


def test_rollouts_that_the_sampling_policy_has_not_seen_do_not_count() -> None:
    assert rollouts_seen(previous_map(4), "i003") == ["i001", "i002", "i003"]
    stale = previous_map(4, staleness=1)
    assert rollouts_seen(stale, stale["i003"].behaviour) == ["i001"]
    assert rollouts_seen(previous_map(5, every=2), "i004") == ["i001", "i003"]


def test_missing_rollouts_are_one_error(context: StageContext[CollectionInputs], tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"i001/rollouts\.parquet: missing"):
        drawn(context, "i002", task_drawing="coverage")
