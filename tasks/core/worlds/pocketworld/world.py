"""The world: opens episodes on the tasks of data/world/, each with its own sandboxed REPL."""

from collections.abc import Callable, Sequence

from tasks.core.config.splits import Split
from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.world import Task
from tasks.core.records.files import ArtifactError
from tasks.core.worlds.pocketworld.authoring.scenarios import TaskSpec, build_problem
from tasks.core.worlds.pocketworld.episodes.episode import PocketEpisode, Repl
from tasks.core.worlds.pocketworld.solutions import oracle


class PocketWorld:
    """A `World` (see `tasks.core.interfaces.world`). `start_repl(seed)` gives each episode its REPL."""

    def __init__(
        self,
        specs: dict[Split, list[TaskSpec]],
        start_repl: Callable[[int], Repl],
        close_sandbox: Callable[[], None] = lambda: None,
        code_blocks: CodeBlocks = "first",
    ) -> None:
        self._specs = {spec.task_id: spec for tasks in specs.values() for spec in tasks}
        self._tasks = {split: tuple(spec.task for spec in tasks) for split, tasks in specs.items()}
        self._start_repl, self._close_sandbox, self._code_blocks = start_repl, close_sandbox, code_blocks

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split. Raises ValueError for an unknown split."""
        if split not in self._tasks:
            raise ValueError(f"unknown split {split!r}; there are {', '.join(self._tasks)}")
        return self._tasks[split]

    def open(self, task_id: str, seed: int) -> PocketEpisode:
        """Start an episode. Raises KeyError for an unknown task, ArtifactError for an altered spec."""
        if task_id not in self._specs:
            raise KeyError(f"unknown task {task_id!r}")
        spec = self._specs[task_id]
        problem = build_problem(spec)
        if problem.instruction != spec.instruction:
            raise ArtifactError(
                f"task {task_id}: the instruction does not belong to the seed; run `dvc repro prepare_world`"
            )
        return PocketEpisode(problem, self._start_repl(seed), self._code_blocks)

    def demonstration(self, task_id: str) -> list[str]:
        """Return the oracle's turns for the task; see `tasks.core.interfaces.world.Demonstrating`."""
        if task_id not in self._specs:
            raise KeyError(f"unknown task {task_id!r}")
        return oracle(build_problem(self._specs[task_id]))

    def close(self) -> None:
        """End the sandbox's processes."""
        self._close_sandbox()
