"""Stage prepare_world: the tasks of all splits, written to data/world/."""

from tasks.core.config.stage_inputs import WorldInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.interfaces.world_kind import prepare_world_folder


def prepare_world(context: StageContext[WorldInputs]) -> None:
    """Generate every split from the world's seed. Same seed, same bytes."""
    prepare_world_folder(context.inputs.world, context.layout.world)
