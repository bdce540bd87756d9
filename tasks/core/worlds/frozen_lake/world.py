"""The world of FrozenLake's maps, and the game on gymnasium's transitions.

Maps are drawn like RAGEN's (start and goal anywhere), and kept if the goal can be reached in time.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Self

import numpy as np
from pydantic import model_validator

from tasks.core.config.splits import SPLITS, Split
from tasks.core.config.world import CodeBlocks
from tasks.core.seeding import derive_seed
from tasks.core.text_games.episode import Briefing, GameRules
from tasks.core.text_games.task_files import GameTask, read_tasks, task_names, write_tasks
from tasks.core.text_games.world import TextGameWorld
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


MEANINGS = ("player", "empty", "hole", "goal", "player in hole", "player on goal")
SYMBOLS, NEW_SYMBOLS = "P_OGX√", "A.#*@!"
"""Symbols in the order of MEANINGS."""
ACTIONS = {name.casefold(): name for name in MOVES}
SUCCESS_RATE = 1 / 3
"""Chance of a step on slippery ice to go where it was meant to: gymnasium's own."""
Transitions = dict[int, dict[int, list[tuple[float, int, float, bool]]]]
"""By cell and number of the action: (probability, next cell, reward, over)."""
NUMBERS = {name: number for number, name in enumerate(MOVES)}


class FrozenLake:
    """A walk on gymnasium's transitions and random numbers, without the arrays that its `step` creates."""

    def __init__(self, transitions: Transitions, task: FrozenLakeTask, seed: int) -> None:
        symbols = symbols_of(task)
        self._transitions, self._symbols = transitions, symbols
        self._random = np.random.Generator(np.random.PCG64(seed))
        self._random.random()  # gymnasium also draws a number for the start
        self._ice, self._width = "".join(task.map), len(task.map[0])
        self._shown = self._ice.translate(str.maketrans("SFHG", symbols[1] + symbols[1:4]))
        self._place = self._ice.index("S")
        self.over = self.solved = False
        self.state = self._map()

    def understood(self, action: str) -> str | None:
        """Return a direction, in any case."""
        return ACTIONS.get(action.casefold())

    def play(self, action: str) -> float:
        """Play one step, which may slip."""
        possible, drawn = self._transitions[self._place][NUMBERS[action]], self._random.random()
        bounds = accumulate(chance for chance, _, _, _ in possible)
        number = next((number for number, bound in enumerate(bounds) if bound > drawn), 0)
        _, self._place, reward, self.over = possible[number]
        self.solved = self.over and self._ice[self._place] == "G"
        self.state = self._map()
        return float(reward)

    def _map(self) -> str:
        """Return the map with the player on it. Computed once per step, because it is read more often."""
        player_cell, width = self._place, self._width
        player = self._symbols[{"H": 4, "G": 5}.get(self._ice[player_cell], 0)]
        cells = f"{self._shown[:player_cell]}{player}{self._shown[player_cell + 1 :]}"
        return "\n".join([cells[begin : begin + width] for begin in range(0, len(cells), width)])


class FrozenLakeKind:
    """A `GameKind` (see `tasks.core.text_games.world`)."""

    def __init__(self, config: FrozenLakeConfig) -> None:
        self._config = config
        self.rules = GameRules("frozen_lake", "reached the goal", 0.0, 1.0, of_chance=config.slippery)
        self.transitions = lru_cache(maxsize=4096)(self._build)
        """By rows of a map; shared by episodes."""

    def briefing(self, task: FrozenLakeTask) -> Briefing:
        slips = "The ice is slippery: you may move in another direction than the one you mean. "
        return Briefing(
            "You are solving the FrozenLake puzzle. Avoid the holes and go to the goal. "
            f"{slips if self._config.slippery else ''}"
            "The answer is a sequence of actions, like <answer>Left || Up</answer>.",
            symbols=tuple(zip(symbols_of(task), MEANINGS, strict=True)),
            actions=tuple(MOVES),
        )

    def instruction(self, task: FrozenLakeTask) -> str:
        return f"Walk from S to G: {' '.join(task.map)}"

    def start(self, task: FrozenLakeTask, seed: int) -> FrozenLake:
        return FrozenLake(self.transitions(task.map), task, seed)

    def solution(self, task: FrozenLakeTask) -> Sequence[str]:
        if self._config.slippery:
            raise ValueError(
                "world.frozen_lake: on slippery ice no fixed sequence of steps solves a task, so there is nothing to "
                "recite; set slippery: false, or use an engine that samples and no collection.demonstrations"
            )
        return shortest_way(task.map)

    def _build(self, rows: tuple[str, ...]) -> Transitions:
        """Return the transitions of gymnasium's environment on a map."""
        from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

        config = self._config
        env = FrozenLakeEnv(desc=list(rows), is_slippery=config.slippery, success_rate=SUCCESS_RATE)
        return env.P


def symbols_of(task: FrozenLakeTask) -> str:
    """Return the symbols in which a task is shown."""
    return NEW_SYMBOLS if task.new_symbols else SYMBOLS


def write_frozen_lake(config: FrozenLakeConfig, seed: int, folder: Path) -> None:
    """Generate the tasks of all splits."""
    write_tasks(folder, draw_tasks(config, seed))


def open_frozen_lake(config: FrozenLakeConfig, code_blocks: CodeBlocks, folder: Path) -> TextGameWorld[FrozenLakeTask]:
    """Open the world of the tasks in `folder`. Raises ArtifactError naming file, line and rule."""
    return TextGameWorld(read_tasks(folder, FrozenLakeTask), FrozenLakeKind(config), config)
