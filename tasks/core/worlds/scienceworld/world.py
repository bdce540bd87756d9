"""The world: the tasks in a folder, and episodes on a pool of JVMs."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.core.config.scienceworld import ScienceWorldConfig
from tasks.core.config.splits import Split
from tasks.core.interfaces.world import Task, WorldFault
from tasks.core.worlds.scienceworld.episode import ScienceEpisode
from tasks.core.worlds.scienceworld.interpreter import java_executable, python_executable
from tasks.core.worlds.scienceworld.pool import SimulatorPool
from tasks.core.worlds.scienceworld.tasks import ScienceTask
from tasks.core.worlds.text_games.prompt import answer_text
from tasks.core.worlds.text_games.task_files import read_tasks


class PooledSession:
    """A `tasks.core.worlds.scienceworld.episode.Session`: a simulator in a JVM of the pool."""

    def __init__(self, pool: SimulatorPool, task: ScienceTask) -> None:
        """Load a task in a simulator. Raises WorldFault."""
        self._pool, self.process, self._closed = pool, pool.take(), False
        try:
            self.opening = self.process.ask({"load": [task.type, task.variation]})
        except BaseException:
            self._give_back()
            raise
        self._number = self.opening["episode"]

    def step(self, action: str) -> dict[str, Any]:
        if self._closed:
            raise WorldFault("the episode is closed")
        return self.process.ask({"step": self._number, "action": action.encode("utf-8", "replace").decode("utf-8")})

    def close(self) -> None:
        if not self._closed:
            with contextlib.suppress(WorldFault):
                self.process.ask({"close": self._number})
            self._give_back()

    def _give_back(self) -> None:
        self._closed = True
        self._pool.give_back(self.process)


class ScienceWorld:
    """A `World` and `Demonstrating` (see `tasks.core.interfaces.world`)."""

    def __init__(
        self, tasks: Mapping[Split, Sequence[ScienceTask]], pool: SimulatorPool, config: ScienceWorldConfig
    ) -> None:
        self._pool, self._config = pool, config
        self._by_id = {task.task_id: task for part in tasks.values() for task in part}
        self._tasks = {split: tuple(map(_listed, part)) for split, part in tasks.items()}

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split. Raises ValueError for an unknown split."""
        if split not in self._tasks:
            raise ValueError(f"unknown split {split!r}; there are {', '.join(self._tasks)}")
        return self._tasks[split]

    def open(self, task_id: str, seed: int) -> ScienceEpisode:
        """Start an episode. Raises KeyError for an unknown task, WorldFault.

        `seed` changes nothing: a task's randomness is fixed by its variation, as in the package.
        """
        return ScienceEpisode(PooledSession(self._pool, self._task(task_id)), self._config)

    @property
    def reads_thoughts(self) -> bool:
        """Whether the world reads thoughts; see `ReadsThoughts`."""
        return self._config.thinking

    def demonstration(self, task_id: str) -> list[str]:
        """Return the official solution, which may exceed the official limit of moves; see `Demonstrating`."""
        thought = "I do what solves it." if self._config.thinking else None
        return [answer_text([action], thought) for action in self._task(task_id).gold]

    def close(self) -> None:
        """End all processes."""
        self._pool.close()

    def _task(self, task_id: str) -> ScienceTask:
        if task_id not in self._by_id:
            raise KeyError(f"unknown task {task_id!r}")
        return self._by_id[task_id]


def open_scienceworld(config: ScienceWorldConfig, folder: Path) -> ScienceWorld:
    """Return the world in `folder`. Raises ArtifactError naming file, line and rule, and InterpreterUnavailable."""
    tasks = read_tasks(folder, ScienceTask)
    return ScienceWorld(tasks, SimulatorPool(python_executable(), java_executable()), config)


def _listed(task: ScienceTask) -> Task:
    return Task(task.task_id, task.scenario_id, task.difficulty, task.split, task.instruction)
