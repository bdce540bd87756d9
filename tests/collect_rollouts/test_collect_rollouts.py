import dataclasses
import pickle
from collections.abc import Sequence
from typing import Any

import pytest

from tasks.collect_rollouts import collect_rollouts, plan_iteration
from tasks.core.config.collection import EarlyStop
from tasks.core.config.dag import iteration_key, previous_map
from tasks.core.config.stage_inputs import CollectionInputs
from tasks.core.engines.transformers.engine import TransformersEngine
from tasks.core.interfaces.stage import ProcessCache, StageContext
from tasks.core.interfaces.world_kind import open_world
from tasks.core.policies.checkpoint_files import policy_digest
from tasks.core.policies.loading import load_base_model, save_policy, trainable_policy
from tasks.core.records.documents import read_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.schemas import ROLLOUTS, TASKS
from tasks.core.records.tables import read_table, write_rows
from tasks.core.records.timings import Timings
from tasks.core.rollouts.playing import open_rollout_resources


def test_the_stage_plays_the_drawn_tasks_and_gives_the_same_bytes_again(
    context: StageContext[CollectionInputs],
) -> None:
    layout = context.layout
    collect_rollouts(context)
    first = layout.rollouts("i001").read_bytes()
    collect_rollouts(context)
    second = layout.rollouts("i001").read_bytes()
    context.cache.close()
    collect_rollouts(dataclasses.replace(context, cache=ProcessCache()))
    assert first == second == layout.rollouts("i001").read_bytes()
    table = read_table(layout.rollouts("i001"), ROLLOUTS)
    assert table.num_rows == 12 and len(set(table["task_id"].to_pylist())) == 3
    assert set(table["adapter_digest"].to_pylist()) == {policy_digest(layout.policy("i000"))}
    assert set(table["split"].to_pylist()) == {"train"}
    timings = read_document(layout.timings("i001"), Timings)
    assert timings.generated_tokens > 0 and timings.wall_s > 0


def test_another_iteration_plays_other_rollouts(context: StageContext[CollectionInputs]) -> None:
    layout = context.layout
    save_policy(_policy(context), layout.policy("i001"))
    for key in ("i001", "i002"):
        collect_rollouts(dataclasses.replace(context, key=key))
    first, second = (read_table(layout.rollouts(key), ROLLOUTS) for key in ("i001", "i002"))
    assert not set(first["seed"].to_pylist()) & set(second["seed"].to_pylist())


def _policy(context: StageContext[CollectionInputs]) -> Any:
    config = context.inputs.policy
    return trainable_policy(load_base_model(context.layout.base_policy, config), config, None, seed=0)


def test_a_warm_process_loads_once_and_again_when_the_files_change(context: StageContext[CollectionInputs]) -> None:
    world, engine, chat = open_rollout_resources(context)
    assert all(new is old for new, old in zip(open_rollout_resources(context), (world, engine, chat), strict=True))
    (context.layout.base_policy / "note.txt").write_text("another base policy")
    changed = open_rollout_resources(context)
    assert changed[0] is world and changed[1] is not engine and changed[2] is not chat
    assert isinstance(changed[1], TransformersEngine)


class Elsewhere:
    """An executor that plays pickled shards, the last shard first, each in a context of its own."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def map(self, work: Any, context: StageContext[Any], items: Sequence[Any]) -> list[Any]:
        self.sizes = [len(item) for item in items]
        played = [self._play(work, context, item) for item in reversed(items)]
        return [pickle.loads(pickle.dumps(part)) for part in reversed(played)]

    def places(self, context: Any) -> int:
        return 2

    def _play(self, work: Any, context: StageContext[Any], item: Any) -> Any:
        there = StageContext(context.layout, pickle.loads(pickle.dumps(context.inputs)), context.key)
        try:
            return work(there, pickle.loads(pickle.dumps(item)))
        finally:
            there.cache.close()


@pytest.mark.parametrize("stop", [None, EarlyStop(min_per_task=2, share=0.5)])
def test_shards_executors_and_concurrency_change_no_byte(
    context: StageContext[CollectionInputs], stop: EarlyStop | None
) -> None:
    def collected(shards: int, at_once: int = 12, **changes: Any) -> bytes:
        knobs = {"shards": shards, "early_stop": stop, "max_concurrent_episodes": at_once}
        collect_rollouts(dataclasses.replace(context, inputs=context.inputs.model_copy(update=knobs), **changes))
        return context.layout.rollouts("i001").read_bytes()

    executor = Elsewhere()
    whole = collected(1)
    assert collected(2, executor=executor) == whole
    assert executor.sizes == [8, 4]
    assert collected(3) == collected(1, at_once=1) == collected(2, at_once=500) == whole
    assert read_document(context.layout.timings("i001"), Timings).generated_tokens > 0


def test_auto_takes_as_many_shards_as_there_are_places(context: StageContext[CollectionInputs]) -> None:
    executor = Elsewhere()
    inputs = context.inputs.model_copy(update={"shards": "auto"})
    collect_rollouts(dataclasses.replace(context, inputs=inputs, executor=executor))
    assert executor.sizes == [8, 4]


def test_decks_continue_where_the_previous_collection_ended(context: StageContext[CollectionInputs]) -> None:
    world = open_world(context.inputs.world, context.layout.world)

    def drawn(every: int) -> list[list[str]]:
        knobs = {"previous": previous_map(9, every=every), "task_drawing": "decks"}
        inputs = context.inputs.model_copy(update=knobs)
        plans = (plan_iteration(world, context.layout, inputs, iteration_key(1 + every * n)) for n in range(3))
        return [[rollout.task.task_id for rollout in plan] for plan in plans]

    assert drawn(every=1) == drawn(every=3)


def test_a_task_that_the_world_does_not_have_is_named(context: StageContext[CollectionInputs]) -> None:
    row = {"task_id": "nowhere_1", "scenario_id": "nowhere", "difficulty": 1, "weight": 1.0}
    write_rows(context.layout.tasks, [row], TASKS)
    with pytest.raises(ArtifactError, match=r"train\.parquet: row 0: the world has no training task nowhere_1"):
        collect_rollouts(context)
    assert not context.layout.rollouts("i001").exists()


def test_a_missing_policy_is_named(context: StageContext[CollectionInputs]) -> None:
    with pytest.raises(ArtifactError, match=r"i001/policy.*missing"):
        collect_rollouts(dataclasses.replace(context, key="i002"))
