"""filter_tasks: the world's train split -> data/tasks/train.parquet."""

from tasks.core.config.splits import SPLITS
from tasks.core.config.stage_inputs import TaskFilterInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.records.schemas import TASKS
from tasks.core.records.tables import write_rows
from tasks.core.worlds.registry import open_world
from tasks.filter_tasks.filtering import keep_tasks, refuse_unknown_ids, sampling_weights, summary, task_rows


def filter_tasks(context: StageContext[TaskFilterInputs]) -> None:
    """Write the training tasks that stay, with their sampling weights. Raises FilterError (see `filtering`)."""
    world = open_world(context.inputs.world, context.layout.world)
    try:
        train = world.tasks("train")
        known = [task.task_id for split in SPLITS for task in world.tasks(split)]
    finally:
        world.close()
    config = context.inputs.tasks
    refuse_unknown_ids(config.denylist, known)
    kept = keep_tasks(train, config)
    write_rows(context.layout.tasks, task_rows(kept, sampling_weights(kept, config)), TASKS)
    print(f"filter_tasks: {summary(train, kept)}")
