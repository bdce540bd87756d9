"""Maps of FrozenLake: drawn like RAGEN's (start and goal anywhere), kept if the goal can be reached in time."""

from collections import deque
from collections.abc import Iterator, Sequence
from random import Random
from typing import Self

from pydantic import model_validator

from tasks.core.config.splits import SPLITS, Split
from tasks.core.seeding import derive_seed
from tasks.core.text_games.task_files import GameTask, task_names
from tasks.core.worlds.frozen_lake.kind import FrozenLakeConfig

MOVES = {"Left": (0, -1), "Down": (1, 0), "Right": (0, 1), "Up": (-1, 0)}
"""Change of row and column by name, in the order of gymnasium's actions 0 to 3."""
FROZEN = 0.8
"""Chance of a cell to be ice, not a hole: gymnasium's own."""
CHALLENGE_SIZE = 5
"""Cells along a side in Test-C: larger than any map that the default trains on."""


class FrozenLakeTask(GameTask):
    """A map in gymnasium's letters: S start, F ice, H hole, G goal."""

    map: tuple[str, ...]
    new_symbols: bool = False

    @model_validator(mode="after")
    def _can_be_solved(self) -> Self:
        letters = "".join(self.map)
        if len({len(row) for row in self.map}) != 1 or not letters:
            raise ValueError("a map must have rows of equal length")
        if set(letters) - set("SFHG") or letters.count("S") != 1 or letters.count("G") != 1:
            raise ValueError("a map must have one S and one G, and otherwise only F and H")
        if not shortest_way(self.map):
            raise ValueError("there is no path from S to G: the map cannot be solved")
        return self


def shortest_way(rows: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the steps of a shortest way from S to G without slipping; empty if there is no way."""
    begin = next((r, row.index("S")) for r, row in enumerate(rows) if "S" in row)
    ways: dict[tuple[int, int], tuple[str, ...]] = {begin: ()}
    queue = deque([begin])
    while queue:
        cell = queue.popleft()
        if rows[cell[0]][cell[1]] == "G":
            return ways[cell]
        for name, (down, right) in MOVES.items():
            r, c = cell[0] + down, cell[1] + right
            if 0 <= r < len(rows) and 0 <= c < len(rows[0]) and rows[r][c] != "H" and (r, c) not in ways:
                ways[r, c] = (*ways[cell], name)
                queue.append((r, c))
    return ()


def draw_tasks(config: FrozenLakeConfig, seed: int) -> dict[Split, list[FrozenLakeTask]]:
    """Draw the tasks of all splits, no map twice. Raises ValueError if there are not enough different maps."""
    seen: set[tuple[str, ...]] = set()
    return {split: _draw_split(config, seed, split, seen) for split in SPLITS}


def draw_maps(random: Random, size: int, config: FrozenLakeConfig) -> Iterator[tuple[str, ...]]:
    """Yield maps with the same random ice and holes and up to three different starts and goals."""
    ice = [["F" if random.random() < FROZEN else "H" for _ in range(size)] for _ in range(size)]
    for _ in range(3):
        cells = [list(row) for row in ice]
        start, goal = random.sample(range(size * size), 2)
        cells[start // size][start % size], cells[goal // size][goal % size] = "S", "G"
        rows = tuple("".join(row) for row in cells)
        if 0 < len(shortest_way(rows)) <= config.max_actions:
            yield rows


def _draw_split(config: FrozenLakeConfig, seed: int, split: Split, seen: set[tuple[str, ...]]) -> list[FrozenLakeTask]:
    random, count = Random(derive_seed(seed, "frozen_lake", split)), getattr(config.counts, split)
    size = CHALLENGE_SIZE if split == "test_challenge" else config.size
    tasks: list[FrozenLakeTask] = []
    for _ in range(100 * count):
        maps = set(draw_maps(random, size, config)) - seen
        if len(maps) == 3:
            seen |= maps
            tasks += [_task(split, len(tasks) + number, rows) for number, rows in enumerate(sorted(maps))]
        if len(tasks) >= count:
            return tasks
    raise ValueError(f"world.frozen_lake: size {size} has too few different maps for {count} tasks of {split}")


def _task(split: Split, index: int, rows: tuple[str, ...]) -> FrozenLakeTask:
    steps = len(shortest_way(rows))
    difficulty = 1 if steps <= 2 else 2 if steps <= 4 else 3
    names, new = task_names(split, index), split == "test_challenge"
    return FrozenLakeTask(**names, difficulty=difficulty, split=split, map=rows, new_symbols=new)
