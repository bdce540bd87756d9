"""The lists of a world's tasks, which all worlds answer questions on alike."""

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from tasks.core.config.splits import Split
from tasks.core.interfaces.world import Task


class Named(Protocol):
    """A task as a world keeps it, with what the world needs to play it."""

    @property
    def task_id(self) -> str: ...


class Described(Named, Protocol):
    """A task that has all that `Task` has."""

    @property
    def scenario_id(self) -> str: ...
    @property
    def difficulty(self) -> int: ...
    @property
    def split(self) -> Split: ...
    @property
    def instruction(self) -> str: ...


T = TypeVar("T", bound=Named)


class ListedTasks(Generic[T]):
    """The base of a `World` whose tasks are known when it is opened."""

    def __init__(self, tasks: Mapping[Split, Sequence[T]], shown: Callable[[T], Task]) -> None:
        """Take the tasks, and what the agent loop sees of one."""
        self._by_id = {task.task_id: task for part in tasks.values() for task in part}
        self._tasks = {split: tuple(map(shown, part)) for split, part in tasks.items()}

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split. Raises ValueError for an unknown split."""
        if split not in self._tasks:
            raise ValueError(f"unknown split {split!r}; there are {', '.join(self._tasks)}")
        return self._tasks[split]

    def task(self, task_id: str) -> T:
        """Return a task as the world keeps it. Raises KeyError for an unknown one."""
        if task_id not in self._by_id:
            raise KeyError(f"unknown task {task_id!r}")
        return self._by_id[task_id]


def described(task: Described) -> Task:
    """Return the part of a task that the agent loop sees."""
    return Task(task.task_id, task.scenario_id, task.difficulty, task.split, task.instruction)
