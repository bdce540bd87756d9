"""Rooms: text, positions, moves, and the search for a shortest solution. Nothing here is random.

A room is text: `#` wall, `_` floor, `O` target, `X` box, `√` box on target, `P` player, `S` player on target. A cell is
its index in that text. Line breaks count as cells, and act as walls.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

FLOOR, TARGET, BOX, BOX_ON_TARGET, PLAYER, PLAYER_ON_TARGET = "_OX√PS"
WALLS = "#\n"
LETTERS = "UDLR"
"""Up, down, left, right, as in the text of solutions."""
LONGEST_SIDE = 16

Position = tuple[int, frozenset[int]]
"""The player's cell and the boxes' cells."""


@dataclass(frozen=True)
class Room:
    """The fixed part of a room."""

    plan: str
    """Walls, floor and targets: the room's text without player and boxes."""
    width: int

    @property
    def steps(self) -> dict[str, int]:
        """Cell offsets by letter."""
        return {"U": -self.width - 1, "D": self.width + 1, "L": -1, "R": 1}

    @property
    def targets(self) -> frozenset[int]:
        return frozenset(cell for cell, kind in enumerate(self.plan) if kind == TARGET)

    def after(self, position: Position, step: int) -> Position | None:
        """Return the position after a step of the player; None if the step is impossible."""
        player, boxes = position
        goal = player + step
        if self.plan[goal] in WALLS:
            return None
        if goal not in boxes:
            return goal, boxes
        behind = goal + step
        if self.plan[behind] in WALLS or behind in boxes:
            return None
        return goal, boxes - {goal} | {behind}

    def before(self, position: Position, step: int) -> Iterator[Position]:
        """Yield the positions from which this step leads to `position`: by walking, or by pushing the box ahead."""
        player, boxes = position
        origin = player - step
        if self.plan[origin] in WALLS or origin in boxes:
            return
        yield origin, boxes
        if player + step in boxes:
            yield origin, boxes - {player + step} | {player}

    def text(self, position: Position) -> str:
        """Return the room as a player sees it."""
        player, boxes = position
        cells = list(self.plan)
        for box in boxes:
            cells[box] = BOX_ON_TARGET if cells[box] == TARGET else BOX
        cells[player] = PLAYER_ON_TARGET if cells[player] == TARGET else PLAYER
        return "".join(cells)


def read_room(text: str) -> tuple[Room, Position]:
    """Parse a room and its position. Raises ValueError naming the broken rule."""
    rows = text.split("\n")
    width = len(rows[0])
    if not 3 <= width <= LONGEST_SIDE or not 3 <= len(rows) <= LONGEST_SIDE or {len(row) for row in rows} != {width}:
        raise ValueError(f"a room must have 3 to {LONGEST_SIDE} rows of equal length, 3 to {LONGEST_SIDE} cells")
    kinds = "#" + FLOOR + TARGET + BOX + BOX_ON_TARGET + PLAYER + PLAYER_ON_TARGET
    if strange := set(text) - set(kinds + "\n"):
        raise ValueError(f"a room may contain only {' '.join(kinds)}, found {sorted(strange)[0]!r}")
    if set(rows[0] + rows[-1]) | {row[0] for row in rows} | {row[-1] for row in rows} != {"#"}:
        raise ValueError("a room must have walls all around")
    players = [cell for cell, kind in enumerate(text) if kind in (PLAYER, PLAYER_ON_TARGET)]
    boxes = frozenset(cell for cell, kind in enumerate(text) if kind in (BOX, BOX_ON_TARGET))
    plan = text.translate(str.maketrans(PLAYER + BOX + PLAYER_ON_TARGET + BOX_ON_TARGET, 2 * FLOOR + 2 * TARGET))
    room = Room(plan, width)
    if len(players) != 1 or not boxes or len(boxes) != len(room.targets):
        raise ValueError("a room must have one player, and as many boxes as targets, at least one")
    return room, (players[0], boxes)


def shortest_solution(room: Room, start: Position, longest: int) -> str | None:
    """Return the letters of a shortest solution of at most `longest` moves, breadth first; None if there is none."""
    steps, targets = room.steps, room.targets
    ways: dict[Position, str] = {start: ""}
    queue = deque([start])
    while queue:
        position = queue.popleft()
        way = ways[position]
        if position[1] == targets:
            return way
        if len(way) < longest:
            for letter in LETTERS:
                following = room.after(position, steps[letter])
                if following is not None and following not in ways:
                    ways[following] = way + letter
                    queue.append(following)
    return None


def moves_to_go(room: Room, longest: int) -> dict[Position, int]:
    """Return every position that can be solved in at most `longest` moves, with its number of moves.

    Reverse play: from all solved positions backwards, breadth first.
    """
    targets = room.targets
    free = [cell for cell, kind in enumerate(room.plan) if kind not in WALLS and cell not in targets]
    distances: dict[Position, int] = {(cell, targets): 0 for cell in free}
    queue = deque(distances)
    while queue:
        position = queue.popleft()
        if distances[position] < longest:
            for step in room.steps.values():
                for earlier in room.before(position, step):
                    if earlier not in distances:
                        distances[earlier] = distances[position] + 1
                        queue.append(earlier)
    return distances


def orientations(text: str) -> list[str]:
    """Return the room in all eight orientations (rotated and mirrored)."""
    rows = text.split("\n")
    texts = []
    for _ in range(4):
        rows = ["".join(column) for column in zip(*rows[::-1], strict=True)]
        texts += ["\n".join(rows), "\n".join(row[::-1] for row in rows)]
    return texts
