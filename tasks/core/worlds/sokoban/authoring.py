"""Tasks of Sokoban: rooms carved by a random walk, positions chosen by reverse play so that each can be solved."""

from random import Random
from typing import Literal, Self

from pydantic import model_validator

from tasks.core.config.splits import SPLITS, Split
from tasks.core.seeding import derive_seed
from tasks.core.text_games.task_files import GameTask, task_names
from tasks.core.worlds.sokoban.kind import SokobanConfig
from tasks.core.worlds.sokoban.rooms import (
    FLOOR,
    LETTERS,
    TARGET,
    Room,
    moves_to_go,
    orientations,
    read_room,
    shortest_solution,
)

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
        for position, moves in moves_to_go(room, config.max_actions).items():
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
            rooms = [_new_room(random, *size, config, seen) for size in (SMALL, SMALL, LARGE)]
        else:
            turned = orientations(_new_room(random, *SMALL, config, seen))
            rooms = random.sample(sorted(set(turned)), 3) if len(set(turned)) >= 3 else []
        tasks += [_task(split, len(tasks) + number, room, config) for number, room in enumerate(rooms)]
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
    rows = [
        "".join(
            TARGET if (r, c) in targets else FLOOR if (r, c) in floor and (r, c) in inner else "#" for c in range(side)
        )
        for r in range(side)
    ]
    return Room("\n".join(rows), side)
