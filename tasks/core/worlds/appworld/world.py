"""The world: the tasks of a root, and episodes on the real engine."""

import ast
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from tasks.core.config.splits import Split
from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.listed_tasks import ListedTasks, described
from tasks.core.interfaces.world import Task
from tasks.core.interpreters import INTERPRETERS, python_executable
from tasks.core.records.files import ArtifactError
from tasks.core.worlds.appworld.episode import AppWorldEpisode, Session
from tasks.core.worlds.appworld.kind import APPWORLD, AppWorldConfig
from tasks.core.worlds.appworld.official_server import OfficialServers
from tasks.core.worlds.appworld.pool import EpisodePool
from tasks.core.worlds.appworld.root import layout, read_prepared_root


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


def open_appworld(settings: AppWorldConfig, code_blocks: CodeBlocks, folder: Path) -> AppWorldTasks:
    """Open the root that `prepare_world` wrote to `folder`. Raises ArtifactError and InterpreterUnavailable."""
    prepared = read_prepared_root(settings, folder)
    recite = partial(demonstration, prepared.root, settings.demonstrated_turns)
    demonstrate = recite if settings.source == "authored" else None
    pool = EpisodePool(python_executable(INTERPRETERS, APPWORLD), prepared.root)
    if settings.engine == "pool":
        return AppWorldTasks(prepared.tasks, pool.open, pool.close, settings, code_blocks, demonstrate)
    servers = OfficialServers(python_executable(INTERPRETERS, APPWORLD), prepared.root, pool)

    def close() -> None:
        servers.close()
        pool.close()

    return AppWorldTasks(prepared.tasks, servers.open, close, settings, code_blocks, demonstrate)


def demonstration(root: Path, most_turns: int | None, task_id: str) -> list[str]:
    """Return how an authored task is solved: its oracle, cut into turns. Read by the trusted parent only.

    The oracle's top-level statements make at most `most_turns` code blocks (None: one for each statement); its
    completing statement is one more. Raises ArtifactError when the oracle is missing or has no function `solution`.
    """
    path = layout.oracle(root, task_id)
    try:
        source = path.read_text(encoding="utf-8")
        (solution,) = (
            one for one in ast.parse(source).body if isinstance(one, ast.FunctionDef) and one.name == "solution"
        )
    except FileNotFoundError:
        raise ArtifactError(f"{path}: missing; this root has no oracle for task {task_id}") from None
    except (SyntaxError, ValueError):
        raise ArtifactError(f"{path}: expected one function named solution") from None
    *work, completion = [ast.unparse(statement) for statement in solution.body]
    size = 1 if most_turns is None else max(1, -(-len(work) // most_turns))
    blocks = ["\n".join(work[begin : begin + size]) for begin in range(0, len(work), size)]
    return [f"```python\n{block}\n```" for block in [*blocks, completion]]
