"""The world of Sokoban's rooms, and the game in one of them. The rewards are gym-sokoban's.

Rooms are carved by a random walk, and positions are chosen by reverse play, so that each can be solved.
"""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Literal, Self

from pydantic import model_validator

from tasks.core.config.splits import SPLITS, Split
from tasks.core.config.world import CodeBlocks
from tasks.core.seeding import derive_seed
from tasks.core.text_games.episode import Briefing, GameRules
from tasks.core.text_games.task_files import GameTask, read_tasks, task_names, write_tasks
from tasks.core.text_games.world import TextGameWorld
from tasks.core.worlds.sokoban import rooms
from tasks.core.worlds.sokoban.kind import SokobanConfig
from tasks.core.worlds.sokoban.rooms import LETTERS, TARGET, Room, orientations, read_room, shortest_solution

STROKES = (((0, -1), (0, 0), (0, 1)), ((-1, 0), (0, 0), (1, 0)), ((0, -1), (0, 0), (1, 0)), ((0, 0), (0, 1), (1, 0)))
"""Cells (row, column), relative to the walk's position, that become floor."""
MIN_MOVES = 2
"""Least length of the shortest solution: the median of rooms that are drawn without it."""
SMALL, LARGE = (6, 1), (8, 2)
"""(side, boxes)."""


class SokobanTask(GameTask):
    """A room, with a shortest solution as proof."""

    room: str
    solution: str
    symbols: Literal["usual", "new"] = "usual"
    actions: Literal["usual", "new"] = "usual"

    @model_validator(mode="after")
    def _can_be_solved(self) -> Self:
        room, position = read_room(self.room)
        for letter in self.solution:
            following = room.after(position, room.steps[letter]) if letter in LETTERS else None
            if following is None:
                raise ValueError(f"the solution {self.solution!r} cannot be walked in its room")
            position = following
        if position[1] != room.targets:
            raise ValueError(f"the solution {self.solution!r} does not solve its room")
        return self


def draw_tasks(config: SokobanConfig, seed: int) -> dict[Split, list[SokobanTask]]:
    """Draw the tasks of all splits; no room twice, in any orientation."""
    seen: set[str] = set()
    return {split: _draw_split(config, Random(derive_seed(seed, "sokoban", split)), split, seen) for split in SPLITS}


def draw_room(random: Random, side: int, boxes: int, config: SokobanConfig) -> str:
    """Draw a room that takes `MIN_MOVES` to `max_actions` moves; all counts that its plan allows are equally likely."""
    while True:
        room = _carved(random, side, boxes)
        if room is None:
            continue
        by_moves: dict[int, list[str]] = {}
        for position, moves in rooms.moves_to_go(room, config.max_actions).items():
            if moves >= MIN_MOVES and not position[1] & room.targets:
                by_moves.setdefault(moves, []).append(room.text(position))
        if by_moves:
            return random.choice(sorted(by_moves[random.choice(sorted(by_moves))]))


def difficulty_of(solution: str) -> int:
    """Return the difficulty: 1 for up to 4 moves, 2 for 5 to 7, 3 for 8 and more."""
    return 1 if len(solution) <= 4 else 2 if len(solution) <= 7 else 3


def _draw_split(config: SokobanConfig, random: Random, split: Split, seen: set[str]) -> list[SokobanTask]:
    tasks: list[SokobanTask] = []
    while len(tasks) < getattr(config.counts, split):
        if split == "test_challenge":
            drawn = [_new_room(random, *size, config, seen) for size in (SMALL, SMALL, LARGE)]
        else:
            turned = orientations(_new_room(random, *SMALL, config, seen))
            drawn = random.sample(sorted(set(turned)), 3) if len(set(turned)) >= 3 else []
        tasks += [_task(split, len(tasks) + number, room, config) for number, room in enumerate(drawn)]
    return tasks


def _new_room(random: Random, side: int, boxes: int, config: SokobanConfig, seen: set[str]) -> str:
    while True:
        room = draw_room(random, side, boxes, config)
        if min(orientations(room)) not in seen:
            seen.add(min(orientations(room)))
            return room


def _task(split: Split, index: int, text: str, config: SokobanConfig) -> SokobanTask:
    solution = shortest_solution(*read_room(text), config.max_actions)
    assert solution is not None, "reverse play reached it"
    variant = index % 3 + 1 if split == "test_challenge" else 0
    return SokobanTask(
        **task_names(split, index),
        difficulty=variant or difficulty_of(solution),
        split=split,
        room=text,
        solution=solution,
        symbols="new" if variant == 1 else "usual",
        actions="new" if variant == 2 else "usual",
    )


def _carved(random: Random, side: int, boxes: int) -> Room | None:
    """Return a floor plan with targets, carved by a walk within the walls; None if there is too little room."""
    floor: set[tuple[int, int]] = set()
    position, direction = (random.randint(1, side - 2), random.randint(1, side - 2)), (0, 1)
    for _ in range(int(1.7 * 2 * side)):
        if random.random() < 0.35:
            direction = random.choice(((1, 0), (0, 1), (-1, 0), (0, -1)))
        position = tuple(max(1, min(side - 2, here + by)) for here, by in zip(position, direction, strict=True))  # type: ignore[assignment]
        floor |= {(position[0] + r, position[1] + c) for r, c in random.choice(STROKES)}
    inner = sorted(cell for cell in floor if min(cell) > 0 and max(cell) < side - 1)
    if len(inner) < 2 * boxes + 2:
        return None
    targets = set(random.sample(inner, boxes))
    kinds = dict.fromkeys(inner, rooms.FLOOR) | dict.fromkeys(targets, TARGET)
    rows = ["".join(kinds.get((r, c), "#") for c in range(side)) for r in range(side)]
    return Room("\n".join(rows), side)


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
        if cells[goal] in (rooms.BOX, rooms.BOX_ON_TARGET):
            reward += self._push(goal, goal + step)
        if cells[goal] not in (*rooms.WALLS, rooms.BOX, rooms.BOX_ON_TARGET):
            cells[self._player] = self._plan[self._player]
            cells[goal] = rooms.PLAYER_ON_TARGET if self._plan[goal] == TARGET else rooms.PLAYER
            self._player = goal
        if not self._off_target:
            self.over = self.solved = True
            reward += SOLVED_REWARD
        return reward

    def _push(self, box: int, behind: int) -> float:
        """Push a box if it can move. Returns the reward in addition to the move's."""
        cells, plan = self._cells, self._plan
        if cells[behind] in (*rooms.WALLS, rooms.BOX, rooms.BOX_ON_TARGET):
            return 0.0
        on = plan[behind] == TARGET
        cells[behind], cells[box] = rooms.BOX_ON_TARGET if on else rooms.BOX, plan[box]
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
