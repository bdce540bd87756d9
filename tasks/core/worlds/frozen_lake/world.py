"""The game around gymnasium's environment, and the world of its maps."""

import copy
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.core.config.text_games import FrozenLakeConfig
from tasks.core.worlds.frozen_lake.maps import MOVES, FrozenLakeTask, draw_tasks, shortest_way
from tasks.core.worlds.text_games.game import Briefing, GameRules
from tasks.core.worlds.text_games.task_files import read_tasks, write_tasks
from tasks.core.worlds.text_games.world import TextGameWorld

if TYPE_CHECKING:
    from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

MEANINGS = ("player", "empty", "hole", "goal", "player in hole", "player on goal")
SYMBOLS, NEW_SYMBOLS = "P_OGX√", "A.#*@!"
"""Of the meanings, in their order."""
ACTIONS = {name.casefold(): name for name in MOVES}
NUMBERS = {name: number for number, name in enumerate(MOVES)}


class FrozenLake:
    """One walk."""

    def __init__(self, env: "FrozenLakeEnv", task: FrozenLakeTask) -> None:
        symbols = symbols_of(task)
        self._env, self._symbols, self._ice = env, symbols, "".join(task.map)
        self._shown = self._ice.translate(str.maketrans("SFHG", symbols[1] + symbols[1:4]))
        self.over = self.solved = False

    @property
    def state(self) -> str:
        """The map, the player on it."""
        place, width = int(self._env.s), self._env.ncol
        player = self._symbols[{"H": 4, "G": 5}.get(self._ice[place], 0)]
        cells = f"{self._shown[:place]}{player}{self._shown[place + 1 :]}"
        return "\n".join(cells[begin : begin + width] for begin in range(0, len(cells), width))

    def understood(self, action: str) -> str | None:
        """A direction, in any case."""
        return ACTIONS.get(action.casefold())

    def play(self, action: str) -> float:
        """One step, or where the ice takes it."""
        _, reward, self.over, _, _ = self._env.step(NUMBERS[action])  # type: ignore[no-untyped-call]
        self.solved = self.over and self._ice[int(self._env.s)] == "G"
        return float(reward)


class FrozenLakeKind:
    """See `tasks.core.worlds.text_games.world.GameKind`."""

    rules = GameRules("frozen_lake", "reached the goal", 0.0, 1.0)

    def __init__(self, config: FrozenLakeConfig) -> None:
        self._config = config
        self._fresh = lru_cache(maxsize=4096)(self._build)

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
        env = copy.copy(self._fresh(task.map))
        env.reset(seed=seed)
        return FrozenLake(env, task)

    def solution(self, task: FrozenLakeTask) -> Sequence[str]:
        if self._config.slippery:
            raise ValueError("frozen_lake: on slippery ice no fixed sequence of steps solves a task")
        return shortest_way(task.map)

    def _build(self, rows: tuple[str, ...]) -> "FrozenLakeEnv":
        """The environment of a map; episodes share its transitions, which nobody changes."""
        from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

        config = self._config
        return FrozenLakeEnv(desc=list(rows), is_slippery=config.slippery, success_rate=config.success_rate)


def symbols_of(task: FrozenLakeTask) -> str:
    """The symbols that a task is shown in."""
    return NEW_SYMBOLS if task.new_symbols else SYMBOLS


def write_frozen_lake(config: FrozenLakeConfig, seed: int, folder: Path) -> None:
    """Generate the tasks of all splits."""
    write_tasks(folder, draw_tasks(config, seed))


def open_frozen_lake(config: FrozenLakeConfig, folder: Path) -> TextGameWorld[FrozenLakeTask]:
    """The world of the tasks in `folder`. Raises ArtifactError naming file, line and rule."""
    return TextGameWorld(read_tasks(folder, FrozenLakeTask), FrozenLakeKind(config), config)
