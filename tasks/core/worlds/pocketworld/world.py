"""The world: opens episodes on the tasks of data/world/, each with its own sandboxed REPL.

data/world/ has a JSON Lines file of task specs per split, checked line by line when read.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tasks.core.config.broken_rules import broken_rules
from tasks.core.config.splits import SPLITS, Split
from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.listed_tasks import ListedTasks, described
from tasks.core.records.files import ArtifactError
from tasks.core.sandbox import Sandbox, SandboxLimits
from tasks.core.worlds.pocketworld.episodes.episode import PocketEpisode, Repl
from tasks.core.worlds.pocketworld.kind import PocketworldConfig
from tasks.core.worlds.pocketworld.problems.problem import TaskSpec, build_problem, read_chain
from tasks.core.worlds.pocketworld.solutions import oracle

_SPEC: TypeAdapter[TaskSpec] = TypeAdapter(TaskSpec)


def read_specs(folder: Path) -> dict[Split, list[TaskSpec]]:
    """Read all splits. Raises ArtifactError naming file, line and rule."""
    specs: dict[Split, list[TaskSpec]] = {split: _read_split(folder / f"{split}.jsonl", split) for split in SPLITS}
    seen: set[str] = set()
    for split, tasks in specs.items():
        for number, spec in enumerate(tasks, start=1):
            if spec.task_id in seen:
                raise ArtifactError(f"{folder / f'{split}.jsonl'}: line {number}: duplicate task id {spec.task_id}")
            seen.add(spec.task_id)
    return specs


def _read_split(path: Path, split: Split) -> list[TaskSpec]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ArtifactError(f"{path}: missing; run `dvc repro prepare_world`") from None
    if text and not text.endswith("\n"):
        raise ArtifactError(f"{path}: line {text.count(chr(10)) + 1}: truncated; delete the folder and run `dvc repro`")
    lines = text.split("\n")[:-1]
    return [_read_spec(line, f"{path}: line {number}", split) for number, line in enumerate(lines, start=1)]


def _read_spec(line: str, location: str, split: Split) -> TaskSpec:
    try:
        content: Any = json.loads(line)
        spec = _SPEC.validate_python(content)
    except json.JSONDecodeError as error:
        raise ArtifactError(f"{location}: not valid JSON ({error}); delete the folder and run `dvc repro`") from None
    except ValidationError as error:
        raise ArtifactError(f"{location}: {broken_rules(error, 'line')[0]}") from None
    _check(spec, location, split)
    return spec


def _check(spec: TaskSpec, location: str, split: Split) -> None:
    try:
        first = read_chain(spec.template, spec.apps)[0][0]
    except KeyError as error:
        raise ArtifactError(f"{location}: unknown template {error}") from None
    except ValueError as error:
        raise ArtifactError(f"{location}: {error}") from None
    if spec.difficulty != first.difficulty:
        raise ArtifactError(
            f"{location}: difficulty {spec.difficulty}, but template {first.name} has {first.difficulty}"
        )
    if spec.split != split:
        raise ArtifactError(f"{location}: split {spec.split!r} in the file of {split!r}")


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
    specs, sandbox = read_specs(folder), Sandbox(SandboxLimits())
    return PocketWorld(specs, sandbox.start, sandbox.close, code_blocks, config.prompt == "full")
