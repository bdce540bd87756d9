"""The game on gymnasium's transitions, and the world of its maps."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

import numpy as np

from tasks.core.config.world import CodeBlocks
from tasks.core.text_games.game import Briefing, GameRules
from tasks.core.text_games.task_files import read_tasks, write_tasks
from tasks.core.text_games.world import TextGameWorld
from tasks.core.worlds.frozen_lake.kind import FrozenLakeConfig
from tasks.core.worlds.frozen_lake.maps import MOVES, FrozenLakeTask, draw_tasks, shortest_way

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
