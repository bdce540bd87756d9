"""The world: the tasks of a root, and episodes on the real engine."""

from collections.abc import Callable, Mapping, Sequence

from tasks.core.config.splits import Split
from tasks.core.config.world import AppWorldSection
from tasks.core.interfaces.world import Task
from tasks.core.worlds.appworld.episode import AppWorldEpisode, Session


class AppWorldTasks:
    """See `tasks.core.interfaces.world.World`. `open_session(task_id)` starts an engine's session.

    `demonstrate(task_id)` gives the turns of a solution; None where none may be shown.
    """

    def __init__(
        self,
        tasks: Mapping[Split, Sequence[Task]],
        open_session: Callable[[str], Session],
        close_engine: Callable[[], None],
        config: AppWorldSection,
        demonstrate: Callable[[str], list[str]] | None = None,
    ) -> None:
        self._tasks = {split: tuple(of_split) for split, of_split in tasks.items()}
        self._known = {task.task_id for of_split in self._tasks.values() for task in of_split}
        self._open_session, self._close_engine = open_session, close_engine
        self._config, self._demonstrate = config, demonstrate

    def tasks(self, split: Split) -> Sequence[Task]:
        """The tasks of a split. Raises ValueError for an unknown one."""
        if split not in self._tasks:
            raise ValueError(f"unknown split {split!r}; there are {', '.join(self._tasks)}")
        return self._tasks[split]

    def open(self, task_id: str, seed: int) -> AppWorldEpisode:
        """Start an episode. Raises KeyError for an unknown task, WorldFault when the engine can't start one.

        `seed` changes nothing: what is random in the engine has the official server's fixed seed.
        """
        if task_id not in self._known:
            raise KeyError(f"unknown task {task_id!r}")
        session = self._open_session(task_id)
        try:
            return AppWorldEpisode(session, self._config)
        except BaseException:
            session.close()
            raise

    def demonstration(self, task_id: str) -> list[str]:
        """See `Demonstrating`. Official solutions must not end up in an artifact: ValueError."""
        if self._demonstrate is None:
            raise ValueError("engines that recite need an authored AppWorld root; official solutions are not copied")
        if task_id not in self._known:
            raise KeyError(f"unknown task {task_id!r}")
        return self._demonstrate(task_id)

    def close(self) -> None:
        """End all processes."""
        self._close_engine()
