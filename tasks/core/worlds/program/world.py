"""The tasks of a program: the user's lines, checked, dealt to splits and written one line each to data/world."""

import json
import random
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any
from weakref import WeakSet

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from tasks.core.config.broken_rules import broken_rules
from tasks.core.config.splits import SPLITS, Split
from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.listed_tasks import ListedTasks, described
from tasks.core.interfaces.world import WorldFault
from tasks.core.interpreters import INTERPRETERS, InterpreterRecipe, python_executable
from tasks.core.records.files import ArtifactError, digest, read_lines, replacing
from tasks.core.seeding import derive_seed
from tasks.core.text_games.task_files import GameTask, read_tasks, write_task_files
from tasks.core.worlds.program.endpoint import Endpoint
from tasks.core.worlds.program.episode import ProgramEpisode, remove_left_files
from tasks.core.worlds.program.kind import ProgramConfig

_SHARES: dict[Split, int] = {"train": 6, "dev": 1, "test_normal": 2, "test_challenge": 1}
"""Scenarios in ten that go to each split where they name none."""

Text = Annotated[
    str, BeforeValidator(lambda value: str(value) if isinstance(value, int) else value), Field(min_length=1)
]


class ProgramTask(GameTask):
    """A task as data/world/ lists it."""

    instruction: str
    given: dict[str, Any]
    """The user's own line, which the program is handed."""
    solution: tuple[str, ...] = ()


class TaskLine(BaseModel):
    """A line of the user's own file; what else stands in it is the program's."""

    model_config = ConfigDict(extra="allow", frozen=True)

    id: Text
    scenario: Text | None = None
    split: Split | None = None
    difficulty: int = Field(1, ge=1, le=3)
    instruction: str | None = None
    solution: tuple[str, ...] = ()

    def task(self, split: Split) -> ProgramTask:
        """Return the task as a split lists it."""
        given = self.model_dump(mode="json", exclude={"solution"}, exclude_unset=True)
        return ProgramTask(
            task_id=self.id,
            scenario_id=self.scenario or self.id,
            difficulty=self.difficulty,
            split=split,
            instruction=self.instruction or self.id,
            given=given | {"split": split},
            solution=self.solution,
        )


def write_program(config: ProgramConfig, seed: int, folder: Path) -> None:
    """Write the tasks of all splits to `folder`. Raises ArtifactError naming file, line and rule."""
    if not config.command or not config.folder:
        raise ArtifactError("params.yaml: world.program: name a command, and the folder with its files and tasks")
    place = Path(config.folder) / config.tasks
    files = [place / f"{split}.jsonl" for split in SPLITS] if place.is_dir() else [place]
    lines = [line for file in files for line in _lines(file, place.is_dir())]
    version = digest(Path(config.folder))
    with replacing(folder) as temporary:
        temporary.mkdir()
        write_task_files(temporary, dealt(lines, seed))
        (temporary / "program.txt").write_text(f"{version}\n", encoding="utf-8")  # what plays makes its stages stale


def dealt(lines: Sequence[TaskLine], seed: int) -> dict[Split, list[ProgramTask]]:
    """Return the tasks by split, whole scenarios at a time, in an order that `seed` draws. Raises ArtifactError."""
    scenarios: dict[str, list[TaskLine]] = {}
    for name, count in Counter(line.id for line in lines).items():
        if count > 1:
            raise ArtifactError(f"world.program.tasks: {count} tasks have the id {name}")
    for line in lines:
        scenarios.setdefault(line.scenario or line.id, []).append(line)
    order = sorted(scenarios)
    random.Random(derive_seed(seed, "program")).shuffle(order)
    free = _splits(sum(scenarios[name][0].split is None for name in order))
    tasks: dict[Split, list[ProgramTask]] = {split: [] for split in SPLITS}
    for name in order:
        named, *others = dict.fromkeys(line.split for line in scenarios[name])
        if others:
            raise ArtifactError(f"world.program.tasks: scenario {name} is in more than one split")
        chosen = next(free) if named is None else named
        tasks[chosen] += [line.task(chosen) for line in scenarios[name]]
    for split in SPLITS:
        if not tasks[split]:
            raise ArtifactError(f"world.program.tasks: {split} has no task")
    return tasks


def _splits(count: int) -> Iterator[Split]:
    """Give the splits of so many scenarios."""
    reached = dict(zip(SPLITS, accumulate(_SHARES[split] for split in SPLITS), strict=True))
    for number in range(count):
        yield next(split for split in SPLITS if number < round(count * reached[split] / 10))


def _lines(file: Path, by_split: bool) -> Iterator[TaskLine]:
    try:
        rows = read_lines(file)
    except (FileNotFoundError, UnicodeDecodeError) as error:
        raise ArtifactError(f"{file}: cannot be read as tasks: {error}") from None
    for number, row in enumerate(rows, start=1):
        try:
            line = TaskLine.model_validate_json(row)
        except ValidationError as error:
            raise ArtifactError(f"{file}: line {number}: {broken_rules(error, 'line')[0]}") from None
        if by_split and line.split not in (None, file.stem):
            raise ArtifactError(f"{file}: line {number}: split {line.split!r} in the file of {file.stem!r}")
        yield line.model_copy(update={"split": file.stem}) if by_split else line


class ProgramWorld(ListedTasks[ProgramTask]):
    """A `World` and `Demonstrating` (see `tasks.core.interfaces.world`). The endpoint begins with the first episode."""

    def __init__(self, tasks: Mapping[Split, Sequence[ProgramTask]], config: ProgramConfig, python: Path) -> None:
        super().__init__(tasks, described)
        self._config, self._python = config, python
        self._lock, self._closed = threading.Lock(), False
        self._endpoint: Endpoint | None = None
        self._episodes: WeakSet[ProgramEpisode] = WeakSet()

    def open(self, task_id: str, seed: int) -> ProgramEpisode:
        """Start the program on a task. Raises KeyError for an unknown task, WorldFault."""
        task = self.task(task_id)
        with self._lock:
            if self._closed:
                raise WorldFault("the world is closed")
            if self._endpoint is None:
                remove_left_files()
                self._endpoint = Endpoint()
        given = json.dumps(task.given, ensure_ascii=False)
        episode = ProgramEpisode(given, seed, self._config, self._python, self._endpoint)
        self._episodes.add(episode)
        return episode

    def demonstration(self, task_id: str) -> list[str]:
        """Return the turns of the task's line `solution`; see `Demonstrating`. Raises ValueError if it has none."""
        solution = self.task(task_id).solution
        if not solution:
            raise ValueError(f"the line of task {task_id} has no solution")
        return list(solution)

    def close(self) -> None:
        """End the programs that still run, and the endpoint. Idempotent."""
        with self._lock:
            self._closed, endpoint, self._endpoint = True, self._endpoint, None
        for episode in list(self._episodes):
            episode.close()
        if endpoint is not None:
            endpoint.end()


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
