"""The world: an environment's tasks, parted into our splits, and its players."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from tasks.core.config.splits import Split
from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.listed_tasks import ListedTasks, described
from tasks.core.records.files import ArtifactError
from tasks.core.text_games.task_files import read_tasks, write_tasks
from tasks.core.worlds.verifiers.episode import VerifiersEpisode
from tasks.core.worlds.verifiers.interpreter import python_executable
from tasks.core.worlds.verifiers.pool import VerifiersPool
from tasks.core.worlds.verifiers.settings import VerifiersConfig
from tasks.core.worlds.verifiers.tasks import VerifiersTask, parted


class VerifiersWorld(ListedTasks[VerifiersTask]):
    """A `World` and `Demonstrating` (see `tasks.core.interfaces.world`)."""

    def __init__(
        self, tasks: Mapping[Split, Sequence[VerifiersTask]], pool: VerifiersPool, config: VerifiersConfig
    ) -> None:
        super().__init__(tasks, described)
        self._pool, self._config = pool, config

    def open(self, task_id: str, seed: int) -> VerifiersEpisode:
        """Start an episode whose environment draws by `seed`. Raises KeyError for an unknown task, WorldFault."""
        task = self.task(task_id)
        return VerifiersEpisode(self._config, lambda: self._pool.player(task, seed))

    def demonstration(self, task_id: str) -> list[str]:
        """Return the solution that the task's data holds; see `Demonstrating`. Raises ValueError if there is none."""
        task = self.task(task_id)
        if not task.solution:
            raise ValueError(
                f"no solution of {task_id} is known; name the field of its data in world.verifiers.solution"
            )
        return list(task.solution)

    def close(self) -> None:
        """End all processes."""
        self._pool.close()


def write_verifiers(config: VerifiersConfig, seed: int, folder: Path) -> None:
    """Part the environment's tasks into splits and write their lists.

    Raises InterpreterUnavailable, and ArtifactError for an environment that cannot be played.
    """
    with closing(_pool(config)) as pool:
        rows = pool.listed()
    write_tasks(folder, parted(rows, config, seed))


def open_verifiers(config: VerifiersConfig, code_blocks: CodeBlocks, folder: Path) -> VerifiersWorld:
    """Open what `write_verifiers` wrote. Raises ArtifactError naming file, line and rule; InterpreterUnavailable."""
    return VerifiersWorld(read_tasks(folder, VerifiersTask), _pool(config), config)


def _pool(config: VerifiersConfig) -> VerifiersPool:
    if not config.environment:
        raise ArtifactError("params.yaml: world.verifiers.environment is empty; name an environment of verifiers")
    if config.folder and not Path(config.folder).is_dir():
        raise ArtifactError(f"params.yaml: world.verifiers.folder: no folder {config.folder}")
    return VerifiersPool(config, python_executable(config.packages))
