"""Demonstrations on tasks that no split holds back, in the package's own environment."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from tasks.core.interfaces.world import Message, Task
from tasks.core.seeding import derive_seed
from tasks.core.worlds.tau2.demonstrations.demonstrator import Demonstrator
from tasks.core.worlds.tau2.demonstrations.habits import IMPERFECT, PERFECT
from tasks.core.worlds.tau2.tasks import kind
from tasks.core.worlds.tau2.world import Tau2World

MOST_DIFFICULT = 2
"""Tasks of six faults and more are test_challenge's, and are never demonstrated."""


@dataclass(frozen=True)
class Demonstration:
    """A played conversation."""

    task_id: str
    imperfect: bool
    messages: list[Message]
    success: bool


def demonstrated_tasks(world: Tau2World) -> list[Task]:
    """Return the tasks of train that may be demonstrated."""
    return [task for task in world.tasks("train") if task.difficulty <= MOST_DIFFICULT]


def play_demonstrations(world: Tau2World, seed: int, count: int, *, imperfect: bool) -> Iterator[Demonstration]:
    """Yield `count` demonstrations: kinds of tickets in turn, and a task of the kind by chance.

    The kinds have equal shares, though 9 in 10 tasks of `full` are about messages.
    """
    tasks = demonstrated_tasks(world)
    kinds: dict[str, Sequence[Task]] = {
        name: [task for task in tasks if kind(task.task_id) == name]
        for name in sorted({kind(t.task_id) for t in tasks})
    }
    habits, names = (IMPERFECT if imperfect else PERFECT), list(kinds)
    for number in range(count):
        random = Random(derive_seed(seed, "tau2 demonstration", "imperfect" if imperfect else "perfect", number))
        task = random.choice(kinds[names[number % len(names)]])
        episode = world.open(task.task_id, 0)
        try:
            demonstrator = Demonstrator(episode, task.instruction, habits, random)
            demonstrator.play()
            yield Demonstration(task.task_id, imperfect, demonstrator.messages, episode.evaluate().success)
        finally:
            episode.close()
