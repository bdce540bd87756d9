"""The world: the tasks of a root, and episodes, which are conversations around a session of the real engine."""

import ast
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from tasks.core.code_blocks import turn_code
from tasks.core.config.splits import Split
from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.listed_tasks import ListedTasks, described
from tasks.core.interfaces.world import Evaluation, Observation, Task
from tasks.core.interpreters import INTERPRETERS, python_executable
from tasks.core.records.files import ArtifactError
from tasks.core.worlds.appworld import layout
from tasks.core.worlds.appworld.kind import APPWORLD, AppWorldConfig
from tasks.core.worlds.appworld.official_server import OfficialServers
from tasks.core.worlds.appworld.pool import EpisodePool, ShellRun, Verdict
from tasks.core.worlds.appworld.prepared_root import read_prepared_root
from tasks.core.worlds.appworld.prompt import NO_CODE, Prompt

GAVE_UP = "the task was not ended with status fail"
"""The one requirement that is not the engine's: see `AppWorldEpisode.evaluate`."""


class Session(Protocol):
    """The part of an engine that an episode needs: `pool.LiveEpisode`, or one on the official server."""

    @property
    def facts(self) -> dict[str, object]:
        """The task's instruction, supervisor and app_descriptions."""
        ...

    def run(self, code: str) -> ShellRun: ...

    def evaluate(self) -> Verdict: ...

    def close(self) -> None: ...


class AppWorldEpisode:
    """See `tasks.core.interfaces.world.Episode`."""

    def __init__(self, session: Session, config: AppWorldConfig, code_blocks: CodeBlocks = "first") -> None:
        self._session, self._config, self._code_blocks = session, config, code_blocks
        self._prompt = Prompt(session.facts, config.reminder)
        self.prompt = self._prompt.opening()

    def step(self, text: str) -> Observation:
        """Run the code of `text` (see `turn_code`). Raises as the interface says."""
        code = turn_code(text, self._code_blocks)
        if not code.blocks:
            return Observation(NO_CODE, done=False, failed=True, code_blocks=0)
        run = self._session.run(code.text)
        text, ending = self._prompt.observed(run.output, code)
        return Observation(
            text,
            ending=ending,
            done=run.completed,
            failed=run.failed,
            api_calls=tuple(name for name, _ in run.calls),
            failed_api_calls=tuple(name for name, failed in run.calls if failed),
            code_blocks=code.blocks,
        )

    def evaluate(self) -> Evaluation:
        """The task's unit tests on the present state, by the engine's own evaluator in a process of its own.

        The engine passes an agent that did nothing wrong and then gave up (status "fail") when the task asks no
        question. Here that fails one more requirement, `GAVE_UP`, unless the official rule was asked for.
        """
        verdict = self._session.evaluate()
        failed = verdict.failed
        if verdict.status == "fail" and not verdict.question and not self._config.official_rule:
            failed = (*failed, GAVE_UP)
        return Evaluation(verdict.passed, failed)

    def close(self) -> None:
        """End the session's processes. Idempotent."""
        self._session.close()


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
