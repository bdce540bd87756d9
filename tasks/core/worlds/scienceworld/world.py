"""The world: the tasks in a folder, and episodes on a pool of JVMs."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.core.config.splits import Split
from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.listed_tasks import ListedTasks, described
from tasks.core.interfaces.world import WorldFault
from tasks.core.text_games.prompt import answer_text
from tasks.core.text_games.task_files import read_tasks
from tasks.core.worlds.scienceworld.episode import ScienceEpisode
from tasks.core.worlds.scienceworld.interpreter import java_executable, python_executable
from tasks.core.worlds.scienceworld.pool import SimulatorPool
from tasks.core.worlds.scienceworld.settings import ScienceWorldConfig
from tasks.core.worlds.scienceworld.tasks import ScienceTask


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


class ScienceWorld(ListedTasks[ScienceTask]):
    """A `World` and `Demonstrating` (see `tasks.core.interfaces.world`)."""

    def __init__(
        self, tasks: Mapping[Split, Sequence[ScienceTask]], pool: SimulatorPool, config: ScienceWorldConfig
    ) -> None:
        super().__init__(tasks, described)
        self._pool, self._config = pool, config

    def open(self, task_id: str, seed: int) -> ScienceEpisode:
        """Start an episode. Raises KeyError for an unknown task, WorldFault.

        `seed` changes nothing: a task's randomness is fixed by its variation, as in the package.
        """
        return ScienceEpisode(PooledSession(self._pool, self.task(task_id)), self._config)

    @property
    def reads_thoughts(self) -> bool:
        """Whether the world reads thoughts; see `ReadsThoughts`."""
        return self._config.thinking

    def demonstration(self, task_id: str) -> list[str]:
        """Return the official solution, which may exceed the official limit of moves; see `Demonstrating`."""
        thought = "I do what solves it." if self._config.thinking else None
        return [answer_text([action], thought) for action in self.task(task_id).gold]

    def close(self) -> None:
        """End all processes."""
        self._pool.close()


def open_scienceworld(config: ScienceWorldConfig, code_blocks: CodeBlocks, folder: Path) -> ScienceWorld:
    """Return the world in `folder`. Raises ArtifactError naming file, line and rule, and InterpreterUnavailable."""
    tasks = read_tasks(folder, ScienceTask)
    return ScienceWorld(tasks, SimulatorPool(python_executable(), java_executable()), config)
