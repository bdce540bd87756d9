"""data/world/ of a game: a JSON Lines file of tasks per split, each line checked when read."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tasks.core.config.broken_rules import broken_rules
from tasks.core.config.splits import SPLITS, Split
from tasks.core.records.files import ArtifactError, read_lines, replacing

_REMEDY = "delete the folder and run `dvc repro prepare_world`"


class GameTask(BaseModel):
    """A task of a game; subclasses add the game's own fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task_id: str
    scenario_id: str
    difficulty: Annotated[int, Field(ge=1, le=3)]
    split: Split


T = TypeVar("T", bound=GameTask)


def task_names(split: Split, index: int) -> dict[str, str]:
    """Return the ids of the `index`-th task of a split: "dev_002_1" is the first of the second scenario of three."""
    scenario = f"{split}_{index // 3 + 1:03d}"
    return {"task_id": f"{scenario}_{index % 3 + 1}", "scenario_id": scenario}


def write_tasks(folder: Path, tasks: Mapping[Split, Sequence[GameTask]]) -> None:
    """Write `<split>.jsonl` for each split; the folder appears whole or not at all."""
    with replacing(folder) as temporary:
        temporary.mkdir()
        write_task_files(temporary, tasks)


def write_task_files(folder: Path, tasks: Mapping[Split, Sequence[GameTask]]) -> None:
    """Write `<split>.jsonl` into an existing folder."""
    for split, part in tasks.items():
        text = "".join(task.model_dump_json() + "\n" for task in part)
        (folder / f"{split}.jsonl").write_text(text, encoding="utf-8")


def read_tasks(folder: Path, kind: type[T]) -> dict[Split, list[T]]:
    """Read all splits. Raises ArtifactError naming file, line and rule."""
    tasks = {split: list(_read_split(folder / f"{split}.jsonl", kind, split)) for split in SPLITS}
    locations: dict[str, str] = {}
    for split, part in tasks.items():
        for number, task in enumerate(part, start=1):
            location = f"{folder / f'{split}.jsonl'}: line {number}"
            if task.task_id in locations:
                raise ArtifactError(
                    f"{location}: task id {task.task_id} is already in {locations[task.task_id]}; {_REMEDY}"
                )
            locations[task.task_id] = location
    return tasks


def _read_split(path: Path, kind: type[T], split: Split) -> Iterator[T]:
    try:
        lines = read_lines(path)
    except FileNotFoundError:
        raise ArtifactError(f"{path}: missing; run `dvc repro prepare_world`") from None
    except UnicodeDecodeError as error:
        raise ArtifactError(f"{path}: not UTF-8 ({error}); {_REMEDY}") from None
    for number, line in enumerate(lines, start=1):
        try:
            task = kind.model_validate_json(line)
        except ValidationError as error:
            raise ArtifactError(f"{path}: line {number}: {broken_rules(error, 'line')[0]}; {_REMEDY}") from None
        if task.split != split:
            raise ArtifactError(f"{path}: line {number}: split {task.split!r} in the file of {split!r}; {_REMEDY}")
        yield task
