"""Stage collect_rollouts@i: play the iteration's tasks with the policy of the iteration before, or an older one."""

from dataclasses import replace

from tasks.core.config.collection import CollectionConfig
from tasks.core.config.params import iteration_number
from tasks.core.config.stage_inputs import CollectionInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.interfaces.world import Task, World
from tasks.core.records.documents import write_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.records.schemas import ROLLOUTS, TASKS
from tasks.core.records.tables import read_table, write_rows
from tasks.core.seeding import derive_seed
from tasks.rollout_collection.planning import PlannedRollout, deal_tasks, draw_tasks, plan_rollouts
from tasks.rollout_collection.play_settings import PlaySettings
from tasks.rollout_collection.rollout_resources import warm_world
from tasks.rollout_collection.shards import play_in_shards


def collect_rollouts(context: StageContext[CollectionInputs]) -> None:
    """Write rollouts.parquet and timings.json of iteration `context.key`.

    Raises ArtifactError for a damaged input, ValueError for a policy that does not fit the base model.
    """
    inputs, layout, key = context.inputs, context.layout, context.key
    world = warm_world(context)
    planned = plan_iteration(world, layout, inputs, key)
    before = inputs.previous[key]
    if inputs.demonstrations:
        context = replace(context, inputs=inputs.model_copy(update={"engine": "oracle"}))
    played = play_in_shards(
        context,
        planned,
        training_settings(inputs),
        policy=layout.policy(before.behaviour),
        description=f"collect_rollouts@{key}",
    )
    write_rows(layout.rollouts(key), [row | {"staleness": before.staleness} for row in played.rows], ROLLOUTS)
    write_document(layout.timings(key), played.stats.timings())


def training_settings(inputs: CollectionInputs | CollectionConfig) -> PlaySettings:
    """How training rollouts are played."""
    return PlaySettings(
        temperature=inputs.temperature,
        limits=inputs.limits,
        max_concurrent_episodes=inputs.max_concurrent_episodes,
        world_retries=inputs.world_retries,
        early_stop=inputs.early_stop,
        judge_unfinished=inputs.judge_unfinished,
        turn_progress=inputs.turn_progress,
    )


def plan_iteration(world: World, layout: Layout, inputs: CollectionInputs, key: str) -> list[PlannedRollout]:
    """The rollouts of iteration `key`: its tasks drawn from tasks/train.parquet, K rollouts of each."""
    tasks, weights = _training_tasks(world, layout)
    seed, count = derive_seed(inputs.seed, "collection", key), inputs.tasks_per_iteration
    if inputs.task_drawing == "decks":
        dealt = count * (iteration_number(key) - 1)
        drawn = deal_tasks(tasks, weights, count, derive_seed(inputs.seed, "decks"), dealt=dealt)
    else:
        drawn = draw_tasks(tasks, weights, count, derive_seed(seed, "tasks"))
    return plan_rollouts(drawn, inputs.rollouts_per_task, derive_seed(seed, "rollouts"), inputs.temperatures)


def _training_tasks(world: World, layout: Layout) -> tuple[list[Task], list[float]]:
    known = {task.task_id: task for task in world.tasks("train")}
    table = read_table(layout.tasks, TASKS)
    names: list[str] = table["task_id"].to_pylist()
    for row, name in enumerate(names):
        if name not in known:
            raise ArtifactError(f"{layout.tasks}: row {row}: the world has no training task {name}")
    return [known[name] for name in names], table["weight"].to_pylist()
