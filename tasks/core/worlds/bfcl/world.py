"""The world: the package's multi-turn tasks, divided into our splits."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.core.config.splits import Split
from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.listed_tasks import ListedTasks, described
from tasks.core.seeding import derive_seed
from tasks.core.text_games.task_files import GameTask, read_tasks, write_tasks
from tasks.core.worlds.bfcl.episode import BfclEpisode
from tasks.core.worlds.bfcl.interpreter import python_executable
from tasks.core.worlds.bfcl.pool import BfclPool
from tasks.core.worlds.bfcl.settings import BfclConfig

BLOCK = 50
"""Consecutive scenarios of one kind: file system, vehicle, trading, travel."""
KEPT_BLOCKS = 3
"""The last block, travel, is test_challenge."""
BLOCK_SPLITS: tuple[tuple[Split, int], ...] = (("train", 25), ("dev", 5), ("test_normal", 20))
"""Scenarios per split in each kept block."""


class BfclTask(GameTask):
    """A task as data/world/ lists it; its id is the package's."""

    instruction: str
    """The user's messages of all turns."""


class BfclWorld(ListedTasks[BfclTask]):
    """A `World` and `Demonstrating` (see `tasks.core.interfaces.world`)."""

    def __init__(self, tasks: Mapping[Split, Sequence[BfclTask]], pool: BfclPool) -> None:
        super().__init__(tasks, described)
        self._pool = pool

    def open(self, task_id: str, seed: int) -> BfclEpisode:
        """Start an episode; `seed` changes nothing. Raises KeyError for an unknown task, WorldFault."""
        return BfclEpisode(self._pool, self.task(task_id).task_id)

    def demonstration(self, task_id: str) -> list[str]:
        """Return the solution of a task; see `Demonstrating`."""
        return self._pool.solution(self.task(task_id).task_id)

    def close(self) -> None:
        """End all processes."""
        self._pool.close()


def write_bfcl(config: BfclConfig, seed: int, folder: Path) -> None:
    """Part the package's tasks into splits and write their lists. Raises InterpreterUnavailable."""
    pool = BfclPool(python_executable())
    try:
        listed = pool.tasks()
    finally:
        pool.close()
    write_tasks(folder, parted(listed, seed))


def open_bfcl(config: BfclConfig, code_blocks: CodeBlocks, folder: Path) -> BfclWorld:
    """Open what `write_bfcl` wrote. Raises ArtifactError naming file, line and rule, and InterpreterUnavailable."""
    return BfclWorld(read_tasks(folder, BfclTask), BfclPool(python_executable()))


def parted(listed: Sequence[Mapping[str, Any]], seed: int) -> dict[Split, list[BfclTask]]:
    """Return the tasks by split.

    A scenario's four tasks stay together; `seed` decides which scenarios each split gets.
    """
    split_of = scenario_splits(seed)
    tasks: dict[Split, list[BfclTask]] = {"train": [], "dev": [], "test_normal": [], "test_challenge": []}
    for task in sorted(listed, key=lambda task: int(task["id"].rpartition("_")[2])):
        index = int(task["id"].rpartition("_")[2])
        split = split_of[index]
        tasks[split].append(
            BfclTask(
                task_id=task["id"],
                scenario_id=f"multi_turn_{index}",
                difficulty=difficulty(task["calls"]),
                split=split,
                instruction=task["instruction"],
            )
        )
    return tasks


def scenario_splits(seed: int) -> dict[int, Split]:
    """Return the split of each of the package's indices, 0 to 199."""
    split_of: dict[int, Split] = {}
    for block in range(KEPT_BLOCKS):
        drawn = list(range(block * BLOCK, (block + 1) * BLOCK))
        random.Random(derive_seed(seed, "bfcl splits", block)).shuffle(drawn)
        for split, count in BLOCK_SPLITS:
            split_of |= dict.fromkeys(drawn[:count], split)
            del drawn[:count]
    return split_of | dict.fromkeys(range(KEPT_BLOCKS * BLOCK, (KEPT_BLOCKS + 1) * BLOCK), "test_challenge")


def difficulty(calls: int) -> int:
    """Return the difficulty by number of ground-truth calls: up to 4, 5 or 6, 7 and more."""
    return 1 if calls <= 4 else 2 if calls <= 6 else 3
