"""Stage collect_rollouts@i: play the iteration's tasks with the policy of the iteration before, or an older one."""

from dataclasses import replace

from tasks.core.config.engine import EngineSection
from tasks.core.config.stage_inputs import CollectionInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.interfaces.world import World
from tasks.core.records.layout import Layout
from tasks.core.rollouts.iteration import collection_seed, tasks_of_iteration, write_played
from tasks.core.rollouts.planning import PlannedRollout, PlaySettings, plan_rollouts
from tasks.core.rollouts.playing import warm_world
from tasks.core.rollouts.shards import play_in_shards
from tasks.core.seeding import derive_seed


def collect_rollouts(context: StageContext[CollectionInputs]) -> None:
    """Write rollouts.parquet and timings.json of iteration `context.key`.

    Raises ArtifactError for a damaged input, and ValueError for a policy that does not fit the base model.
    """
    inputs, layout, key = context.inputs, context.layout, context.key
    behaviour = inputs.previous[key].behaviour
    world = warm_world(context)
    planned = plan_iteration(world, layout, inputs, key)
    if inputs.demonstrations:
        context = replace(
            context, inputs=inputs.model_copy(update={"engine": EngineSection.of(EngineSection.reciting_name)})
        )
    played = play_in_shards(
        context,
        planned,
        PlaySettings.of_training(inputs),
        policy=layout.policy(behaviour),
        description=f"collect_rollouts@{key}",
    )
    write_played(context, played)


def plan_iteration(world: World, layout: Layout, inputs: CollectionInputs, key: str) -> list[PlannedRollout]:
    """Return the rollouts of iteration `key`: K of each of its tasks."""
    drawn = tasks_of_iteration(world, layout, inputs, key, inputs.rollouts_per_task)
    seed = derive_seed(collection_seed(inputs, key), "rollouts")
    return plan_rollouts(drawn, inputs.rollouts_per_task, seed, inputs.temperatures)
