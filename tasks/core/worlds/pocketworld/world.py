"""The world: opens episodes on the tasks of data/world/, each with its own sandboxed REPL."""

from collections.abc import Callable
from pathlib import Path

from tasks.core.config.splits import Split
from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.listed_tasks import ListedTasks, described
from tasks.core.records.files import ArtifactError
from tasks.core.sandbox import Sandbox, SandboxLimits
from tasks.core.text_games.task_files import read_tasks
from tasks.core.worlds.pocketworld.episode import PocketEpisode, Repl
from tasks.core.worlds.pocketworld.kind import PocketworldConfig
from tasks.core.worlds.pocketworld.problem import TaskSpec, build_problem, oracle


class PocketWorld(ListedTasks[TaskSpec]):
    """A `World` (see `tasks.core.interfaces.world`). `start_repl(seed)` gives each episode its REPL."""

    def __init__(
        self,
        specs: dict[Split, list[TaskSpec]],
        start_repl: Callable[[int], Repl],
        close_sandbox: Callable[[], None] = lambda: None,
        code_blocks: CodeBlocks = "first",
        full_prompt: bool = False,
    ) -> None:
        super().__init__(specs, described)
        self._start_repl, self._close_sandbox = start_repl, close_sandbox
        self._code_blocks, self._full_prompt = code_blocks, full_prompt

    def open(self, task_id: str, seed: int) -> PocketEpisode:
        """Start an episode. Raises KeyError for an unknown task, ArtifactError for an altered spec."""
        spec = self.task(task_id)
        problem = build_problem(spec)
        if problem.instruction != spec.instruction:
            raise ArtifactError(
                f"task {task_id}: the instruction does not belong to the seed; run `dvc repro prepare_world`"
            )
        return PocketEpisode(problem, self._start_repl(seed), self._code_blocks, self._full_prompt)

    def demonstration(self, task_id: str) -> list[str]:
        """Return the oracle's turns for the task; see `tasks.core.interfaces.world.Demonstrating`."""
        return oracle(build_problem(self.task(task_id)))

    def close(self) -> None:
        """End the sandbox's processes."""
        self._close_sandbox()


def open_pocketworld(config: PocketworldConfig, code_blocks: CodeBlocks, folder: Path) -> PocketWorld:
    """Open the world of the specs in `folder`, with a sandbox of its own. Raises ArtifactError."""
    specs, sandbox = read_tasks(folder, TaskSpec), Sandbox(SandboxLimits())
    return PocketWorld(specs, sandbox.start, sandbox.close, code_blocks, config.prompt == "full")
