"""The world: the user's tasks, the interpreter of their program, and the endpoint of the process that plays."""

import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tasks.core.config.splits import Split
from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.listed_tasks import ListedTasks, described
from tasks.core.interfaces.world import WorldFault
from tasks.core.interpreters import INTERPRETERS, InterpreterRecipe, python_executable
from tasks.core.records.files import ArtifactError
from tasks.core.text_games.task_files import read_tasks
from tasks.core.worlds.program.endpoint import Endpoint
from tasks.core.worlds.program.episode import ProgramEpisode
from tasks.core.worlds.program.kind import ProgramConfig
from tasks.core.worlds.program.tasks import ProgramTask


class ProgramWorld(ListedTasks[ProgramTask]):
    """A `World` and `Demonstrating` (see `tasks.core.interfaces.world`). The endpoint begins with the first episode."""

    def __init__(self, tasks: Mapping[Split, Sequence[ProgramTask]], config: ProgramConfig, python: Path) -> None:
        super().__init__(tasks, described)
        self._config, self._python = config, python
        self._lock, self._closed = threading.Lock(), False
        self._endpoint: Endpoint | None = None

    def open(self, task_id: str, seed: int) -> ProgramEpisode:
        """Start the program on a task. Raises KeyError for an unknown task, WorldFault."""
        task = self.task(task_id)
        with self._lock:
            if self._closed:
                raise WorldFault("the world is closed")
            self._endpoint = self._endpoint or Endpoint()
        return ProgramEpisode(task, seed, self._config, self._python, self._endpoint)

    def demonstration(self, task_id: str) -> list[str]:
        """Return the turns of the task's line `solution`; see `Demonstrating`. Raises ValueError if it has none."""
        solution = self.task(task_id).solution
        if not solution:
            raise ValueError(f"the line of task {task_id} has no solution")
        return list(solution)

    def close(self) -> None:
        """End the endpoint. Idempotent; programs that still run are answered no more."""
        with self._lock:
            self._closed, endpoint, self._endpoint = True, self._endpoint, None
        if endpoint is not None:
            endpoint.close()


def open_program(config: ProgramConfig, code_blocks: CodeBlocks, folder: Path) -> ProgramWorld:
    """Open what `write_program` wrote. Raises ArtifactError naming file, line and rule; InterpreterUnavailable."""
    if not Path(config.folder).is_dir():
        raise ArtifactError(f"params.yaml: world.program.folder: no folder {config.folder}")
    return ProgramWorld(read_tasks(folder, ProgramTask), config, _python(config))


def _python(config: ProgramConfig) -> Path:
    if not config.requirements:
        return Path(sys.executable)
    listed = Path(config.folder) / config.requirements
    if not listed.is_file():
        raise ArtifactError(f"params.yaml: world.program.requirements: no file {listed}")
    return python_executable(INTERPRETERS, InterpreterRecipe("program", listed, ">=3.11"))
