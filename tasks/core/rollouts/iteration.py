"""Work shared by the stages that sample for an iteration: choosing its tasks and writing its rollouts."""

from collections.abc import Mapping, Sequence

from tasks.core.config.dag import Predecessors, iteration_number
from tasks.core.config.stage_inputs import SamplingInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.interfaces.world import Task, World
from tasks.core.records.documents import write_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.records.schemas import ROLLOUTS, TASKS, VOID_REASONS
from tasks.core.records.tables import read_table, write_rows
from tasks.core.rollouts.planning import deal_tasks, draw_tasks
from tasks.core.rollouts.shards import PlayedRollouts
from tasks.core.seeding import derive_seed
from tasks.core.signal_coverage import SuccessCounts


def signal_shares(
    layout: Layout, previous: Mapping[str, Predecessors], key: str, tasks: Sequence[str], group: int
) -> Mapping[str, float]:
    """Return each task's probability that `group` rollouts of it carry a signal in iteration `key`.

    It is 1 before any rollout was played. Reads only the rollouts that trained the sampling policy, so they exist in
    whatever order the stages run. Raises ArtifactError if they are damaged.
    """
    counts = SuccessCounts(tasks)
    for seen in rollouts_seen(previous, previous[key].behaviour):
        table = read_table(layout.rollouts(seen), ROLLOUTS).select(["task_id", "success", "end_reason"])
        rollouts = table.to_pandas()
        valid = rollouts[~rollouts["end_reason"].isin(list(VOID_REASONS)) & rollouts["task_id"].isin(list(tasks))]
        for task, successes in valid.groupby("task_id")["success"]:
            counts.add(str(task), float(successes.sum()), len(successes))
    return counts.shares(group) if counts else dict.fromkeys(tasks, 1.0)


def rollouts_seen(previous: Mapping[str, Predecessors], policy: str) -> list[str]:
    """Return the iterations whose rollouts a policy has been trained on, in order."""
    keys = [key for key in previous if iteration_number(key) <= iteration_number(policy)]
    return sorted({previous[key].batch for key in keys})


def tasks_of_iteration(world: World, layout: Layout, inputs: SamplingInputs, key: str, group: int) -> list[Task]:
    """Draw the tasks of iteration `key` from tasks/train.parquet, each to be played `group` times.

    A task may occur more than once. Raises ArtifactError for a damaged input.
    """
    tasks, weights = _training_tasks(world, layout)
    count = inputs.tasks_per_iteration
    if inputs.task_drawing == "coverage":
        shares = signal_shares(layout, inputs.previous, key, [task.task_id for task in tasks], group)
        weights = [weight * shares[task.task_id] for task, weight in zip(tasks, weights, strict=True)]
    if inputs.task_drawing == "decks":
        dealt = count * len(rollouts_seen(inputs.previous, inputs.previous[key].policy))
        return deal_tasks(tasks, weights, count, derive_seed(inputs.seed, "decks"), dealt=dealt)
    return draw_tasks(tasks, weights, count, derive_seed(collection_seed(inputs, key), "tasks"))


def collection_seed(inputs: SamplingInputs, key: str) -> int:
    """Return the seed of everything that iteration `key` samples."""
    return derive_seed(inputs.seed, "collection", key)


def write_played(context: StageContext[SamplingInputs], played: PlayedRollouts) -> None:
    """Write rollouts.parquet and timings.json of iteration `context.key`. Raises ArtifactError for an invalid row."""
    layout, key = context.layout, context.key
    staleness = context.inputs.previous[key].staleness
    write_rows(layout.rollouts(key), [row | {"staleness": staleness} for row in played.rows], ROLLOUTS)
    write_document(layout.timings(key), played.stats.timings())


def _training_tasks(world: World, layout: Layout) -> tuple[list[Task], list[float]]:
    known = {task.task_id: task for task in world.tasks("train")}
    table = read_table(layout.tasks, TASKS)
    names: list[str] = table["task_id"].to_pylist()
    for row, name in enumerate(names):
        if name not in known:
            raise ArtifactError(f"{layout.tasks}: row {row}: the world has no training task {name}")
    return [known[name] for name in names], table["weight"].to_pylist()
