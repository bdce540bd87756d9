"""Which rollouts an iteration plays: the tasks drawn for it, and a seed for each rollout."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tasks.core.interfaces.world import Task
from tasks.core.seeding import derive_seed


@dataclass(frozen=True)
class PlannedRollout:
    """One episode to be played."""

    task: Task
    rollout_index: int
    seed: int
    """Everything random in this rollout is drawn from streams derived from this seed."""

    @property
    def name(self) -> str:
        return f"{self.task.task_id}#{self.rollout_index}"


def draw_tasks(tasks: Sequence[Task], weights: Sequence[float], count: int, seed: int) -> list[Task]:
    """Draw `count` tasks with probabilities proportional to `weights`, none twice as long as there are enough.

    With fewer tasks than `count`, all are taken as often as they go into it, and the rest is drawn. Raises ValueError
    when no task has a weight above 0.
    """
    candidates = [(task, weight) for task, weight in zip(tasks, weights, strict=True) if weight > 0]
    if not candidates:
        raise ValueError("no training task has a weight above 0: see the `tasks` section of params.yaml")
    probabilities = np.array([weight for _, weight in candidates], dtype=np.float64)
    rounds, rest = divmod(count, len(candidates))
    drawn = [task for _ in range(rounds) for task, _ in candidates]
    generator = np.random.Generator(np.random.Philox(key=seed))
    chosen = generator.choice(len(candidates), size=rest, replace=False, p=probabilities / probabilities.sum())
    return drawn + [candidates[index][0] for index in chosen]


def plan_rollouts(tasks: Sequence[Task], rollouts_per_task: int, seed: int) -> list[PlannedRollout]:
    """`rollouts_per_task` rollouts of every task, each with its own seed; a task given twice gets twice as many.

    They come round by round, so that no task is behind the others when collection stops early. A rollout's seed depends
    on `seed`, its task and its index alone, so that two policies played with one seed meet the same draws.
    """
    planned: dict[str, int] = {}
    rollouts: list[PlannedRollout] = []
    for task in tasks:
        first = planned.get(task.task_id, 0)
        planned[task.task_id] = first + rollouts_per_task
        for index in range(first, first + rollouts_per_task):
            rollouts.append(PlannedRollout(task, index, derive_seed(seed, task.task_id, index)))
    return sorted(rollouts, key=lambda planned: planned.rollout_index)
