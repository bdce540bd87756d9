"""The world: the tasks of a root, and episodes on the real engine."""

from collections.abc import Callable, Mapping, Sequence

from tasks.core.config.splits import Split
from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.listed_tasks import ListedTasks, described
from tasks.core.interfaces.world import Task
from tasks.core.worlds.appworld.episode import AppWorldEpisode, Session
from tasks.core.worlds.appworld.kind import AppWorldConfig


class AppWorldTasks(ListedTasks[Task]):
    """See `tasks.core.interfaces.world.World`. `open_session(task_id)` starts an engine's session.

    `demonstrate(task_id)` gives the turns of a solution; None where none may be shown.
    """

    def __init__(
        self,
        tasks: Mapping[Split, Sequence[Task]],
        open_session: Callable[[str], Session],
        close_engine: Callable[[], None],
        config: AppWorldConfig,
        code_blocks: CodeBlocks,
        demonstrate: Callable[[str], list[str]] | None = None,
    ) -> None:
        super().__init__(tasks, described)
        self._open_session, self._close_engine = open_session, close_engine
        self._config, self._code_blocks, self._demonstrate = config, code_blocks, demonstrate

    def open(self, task_id: str, seed: int) -> AppWorldEpisode:
        """Start an episode. Raises KeyError for an unknown task, WorldFault when the engine can't start one.

        `seed` changes nothing: what is random in the engine has the official server's fixed seed.
        """
        session = self._open_session(self.task(task_id).task_id)
        try:
            return AppWorldEpisode(session, self._config, self._code_blocks)
        except BaseException:
            session.close()
            raise

    def demonstration(self, task_id: str) -> list[str]:
        """See `Demonstrating`. Official solutions must not end up in an artifact: ValueError."""
        if self._demonstrate is None:
            raise ValueError("engines that recite need an authored AppWorld root; official solutions are not copied")
        return self._demonstrate(self.task(task_id).task_id)

    def close(self) -> None:
        """End all processes."""
        self._close_engine()
