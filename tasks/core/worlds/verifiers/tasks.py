"""The environment's tasks, divided into our splits."""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tasks.core.config.splits import SPLITS, Split
from tasks.core.records.files import ArtifactError
from tasks.core.seeding import derive_seed
from tasks.core.text_games.task_files import GameTask
from tasks.core.worlds.verifiers.settings import VerifiersConfig


class VerifiersTask(GameTask):
    """A task as data/world/ lists it."""

    instruction: str
    stream: int
    """Place of the split's settings among those of all splits."""
    row: int
    """Place in the taskset, as the environment counts."""
    content: str
    """Digest of the task's data without what only names it."""
    solution: tuple[str, ...] = ()
    """Turns that solve it, where its data has them."""


class Row(NamedTuple):
    """A task as the environment lists it."""

    row: int
    content: str
    instruction: str
    solution: tuple[str, ...] = ()


def needed(config: VerifiersConfig) -> list[int]:
    """Return how many tasks each stream must have for its splits."""
    streams = config.streams
    counts = [0] * len(streams)
    for split in SPLITS:
        counts[streams.index(config.stream_of(split))] += config.split(split).tasks
    return counts


def parted(streams: Sequence[Sequence[Row]], config: VerifiersConfig, seed: int) -> dict[Split, list[VerifiersTask]]:
    """Return the tasks by split. Raises ArtifactError where there are too few, and for one that is in two splits."""
    settings = config.streams
    dealers = [iter(_shuffled(rows, seed, number)) for number, rows in enumerate(streams)]
    tasks = {}
    for split in SPLITS:
        stream = settings.index(config.stream_of(split))
        tasks[split] = list(_dealt(dealers[stream], split, stream, config))
    _refuse_leaks(tasks)
    return tasks


def _shuffled(rows: Sequence[Row], seed: int, stream: int) -> list[Row]:
    """Return each content once, in an order that follows from the seed."""
    once = list({row.content: row for row in reversed(rows)}.values())[::-1]
    random.Random(derive_seed(seed, "verifiers", stream)).shuffle(once)
    return once


def _dealt(rows: Iterator[Row], split: Split, stream: int, config: VerifiersConfig) -> Iterator[VerifiersTask]:
    for number in range(config.split(split).tasks):
        row = next(rows, None)
        if row is None:
            raise ArtifactError(
                f"params.yaml: world.verifiers.splits.{split}.tasks: {config.environment} has {number} different tasks "
                f"for it, not {config.split(split).tasks}"
            )
        task_id = f"{split}_{number + 1:04d}"
        yield VerifiersTask(
            task_id=task_id,
            scenario_id=task_id,
            difficulty=1,
            split=split,
            instruction=row.instruction,
            stream=stream,
            row=row.row,
            content=row.content,
            solution=row.solution,
        )


def _refuse_leaks(tasks: Mapping[Split, Sequence[VerifiersTask]]) -> None:
    seen: dict[str, VerifiersTask] = {}
    for split in SPLITS:
        for task in tasks[split]:
            other = seen.setdefault(task.content, task)
            if other.split != split:
                raise ArtifactError(
                    f"params.yaml: world.verifiers.splits: row {other.row} of {other.split} and row {task.row} of "
                    f"{split} are the same task: {task.instruction[:80]!r}"
                )
