"""The game of Sokoban, and the world of its rooms. The rewards are gym-sokoban's."""

from collections.abc import Sequence
from pathlib import Path

from tasks.core.config.world import CodeBlocks
from tasks.core.text_games.game import Briefing, GameRules
from tasks.core.text_games.task_files import read_tasks, write_tasks
from tasks.core.text_games.world import TextGameWorld
from tasks.core.worlds.sokoban.authoring import LARGE, SokobanTask, draw_tasks
from tasks.core.worlds.sokoban.kind import SokobanConfig
from tasks.core.worlds.sokoban.rooms import (
    BOX,
    BOX_ON_TARGET,
    LETTERS,
    PLAYER,
    PLAYER_ON_TARGET,
    TARGET,
    WALLS,
    read_room,
)

MOVE_REWARD, BOX_REWARD, SOLVED_REWARD = -0.1, 1.0, 10.0
MEANINGS = ("wall", "empty", "target", "box on target", "box", "player", "player on target")
SYMBOLS = {"usual": "#_O√XPS", "new": "W.GCBA@"}
"""Symbols in the order of MEANINGS; the new symbols are RAGEN's."""
ACTIONS = {"usual": ("Up", "Down", "Left", "Right"), "new": ("North", "South", "West", "East")}
"""In the order of `LETTERS`."""


class Sokoban:
    """A room in play: a list of cells, which moves change in place."""

    def __init__(self, task: SokobanTask) -> None:
        room, (self._player, boxes) = read_room(task.room)
        self._cells, self._plan = list(task.room), room.plan
        self._off_target = len(boxes - room.targets)
        self._steps = dict(zip(ACTIONS[task.actions], (room.steps[letter] for letter in LETTERS), strict=True))
        self._names = {name.casefold(): name for name in self._steps}
        self._new = str.maketrans(SYMBOLS["usual"], SYMBOLS["new"]) if task.symbols == "new" else None
        self.over = self.solved = self._off_target == 0

    @property
    def state(self) -> str:
        """The room as the player sees it."""
        text = "".join(self._cells)
        return text.translate(self._new) if self._new else text

    def understood(self, action: str) -> str | None:
        """Return a direction, in any case."""
        return self._names.get(action.casefold())

    def play(self, action: str) -> float:
        """Walk, or push a box that is ahead and can move. Otherwise nothing happens, but the move is charged."""
        cells, step = self._cells, self._steps[action]
        goal, reward = self._player + step, MOVE_REWARD
        if cells[goal] in (BOX, BOX_ON_TARGET):
            reward += self._push(goal, goal + step)
        if cells[goal] not in (*WALLS, BOX, BOX_ON_TARGET):
            cells[self._player] = self._plan[self._player]
            cells[goal] = PLAYER_ON_TARGET if self._plan[goal] == TARGET else PLAYER
            self._player = goal
        if not self._off_target:
            self.over = self.solved = True
            reward += SOLVED_REWARD
        return reward

    def _push(self, box: int, behind: int) -> float:
        """Push a box if it can move. Returns the reward in addition to the move's."""
        cells, plan = self._cells, self._plan
        if cells[behind] in (*WALLS, BOX, BOX_ON_TARGET):
            return 0.0
        on = plan[behind] == TARGET
        cells[behind], cells[box] = BOX_ON_TARGET if on else BOX, plan[box]
        change = int(on) - int(plan[box] == TARGET)
        self._off_target -= change
        return BOX_REWARD * change


class SokobanKind:
    """A `GameKind` (see `tasks.core.text_games.world`)."""

    def __init__(self, config: SokobanConfig) -> None:
        most = LARGE[1] * BOX_REWARD + SOLVED_REWARD + MOVE_REWARD
        self.rules = GameRules("sokoban", "every box is on a target", MOVE_REWARD * config.max_actions, most)

    def briefing(self, task: SokobanTask) -> Briefing:
        right, up = ACTIONS[task.actions][3], ACTIONS[task.actions][0]
        return Briefing(
            "You are solving the Sokoban puzzle. You are the player and you need to push all boxes to targets. "
            "When you are right next to a box, you can push it by moving in the same direction. "
            "You cannot push a box through a wall, and you cannot pull a box. "
            f"The answer should be a sequence of actions, like <answer>{right} || {right} || {up}</answer>",
            symbols=tuple(zip(SYMBOLS[task.symbols], MEANINGS, strict=True)),
            actions=ACTIONS[task.actions],
        )

    def instruction(self, task: SokobanTask) -> str:
        return f"Push every box onto a target: {' '.join(task.room.split())}"

    def start(self, task: SokobanTask, seed: int) -> Sokoban:
        return Sokoban(task)

    def solution(self, task: SokobanTask) -> Sequence[str]:
        names = dict(zip(LETTERS, ACTIONS[task.actions], strict=True))
        return [names[letter] for letter in task.solution]


def write_sokoban(config: SokobanConfig, seed: int, folder: Path) -> None:
    """Generate the tasks of all splits."""
    write_tasks(folder, draw_tasks(config, seed))


def open_sokoban(config: SokobanConfig, code_blocks: CodeBlocks, folder: Path) -> TextGameWorld[SokobanTask]:
    """Open the world of the tasks in `folder`. Raises ArtifactError naming file, line and rule."""
    return TextGameWorld(read_tasks(folder, SokobanTask), SokobanKind(config), config)
