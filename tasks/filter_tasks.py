"""Stage filter_tasks: the world's train split -> data/tasks/train.parquet."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tasks.core.config.collection import TaskFilterConfig
from tasks.core.config.splits import SPLITS
from tasks.core.config.stage_inputs import TaskFilterInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.interfaces.world import Task
from tasks.core.interfaces.world_kind import open_world
from tasks.core.records.schemas import TASKS
from tasks.core.records.tables import write_rows


class FilterError(ValueError):
    """Parameters of the filter that make no sense for this world; the message names the parameter."""


def keep_tasks(train: Sequence[Task], config: TaskFilterConfig) -> list[Task]:
    """Return the tasks up to `max_difficulty` that are not denylisted, in their given order.

    Raises FilterError when none is left.
    """
    denied = set(config.denylist)
    kept = [task for task in train if task.difficulty <= config.max_difficulty and task.task_id not in denied]
    if not kept:
        raise FilterError(
            f"no training task is left of {len(train)}: tasks.max_difficulty = {config.max_difficulty} and "
            f"tasks.denylist ({len(denied)} ids) drop them all; raise the first or shorten the second"
        )
    return kept


def refuse_unknown_ids(denylist: Iterable[str], known: Iterable[str]) -> None:
    """Raise FilterError naming the denylisted ids that the world does not know: a misspelt id would filter nothing."""
    unknown = sorted(set(denylist) - set(known))
    if unknown:
        raise FilterError(f"tasks.denylist: the world has no task {', '.join(unknown)}")


def sampling_weights(tasks: Sequence[Task], config: TaskFilterConfig) -> list[float]:
    """Return the probability of drawing each task; the sum is 1.

    With `equal_difficulties` every present difficulty level is equally likely (LOOP's code draws 1 and 2 so), and so is
    every task within a level; otherwise every task is.
    """
    if not config.equal_difficulties:
        return [1 / len(tasks)] * len(tasks)
    sizes = Counter(task.difficulty for task in tasks)
    return [1 / (len(sizes) * sizes[task.difficulty]) for task in tasks]


def task_rows(tasks: Sequence[Task], weights: Sequence[float]) -> list[dict[str, Any]]:
    """Return rows of `records.schemas.TASKS`."""
    return [
        {"task_id": task.task_id, "scenario_id": task.scenario_id, "difficulty": task.difficulty, "weight": weight}
        for task, weight in zip(tasks, weights, strict=True)
    ]


def summary(train: Sequence[Task], kept: Sequence[Task], max_difficulty: int) -> str:
    """Return one line for a person: how many tasks were kept, and how many are too hard."""
    by_difficulty = sorted(Counter(task.difficulty for task in kept).items())
    levels = ", ".join(f"{count} of difficulty {level}" for level, count in by_difficulty)
    scenarios = f"{_scenarios(kept)} of {_scenarios(train)} scenarios"
    hard = sum(task.difficulty > max_difficulty for task in train)
    note = f"; tasks.max_difficulty: {max_difficulty} leaves out {hard} harder ones" if hard else ""
    return f"kept {len(kept)} of {len(train)} training tasks ({scenarios}): {levels}{note}"


def _scenarios(tasks: Sequence[Task]) -> int:
    return len({task.scenario_id for task in tasks})


def filter_tasks(context: StageContext[TaskFilterInputs]) -> None:
    """Write the kept training tasks with their sampling weights. Raises FilterError."""
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
    print(f"filter_tasks: {summary(train, kept, config.max_difficulty)}")
