"""Demonstrations of Sokoban: the shortest solution from the current position of the boxes."""

from collections.abc import Sequence
from functools import lru_cache
from random import Random

from tasks.core.policies.architecture import TinyQwen2
from tasks.core.text_games.demonstrations import (
    FRESH,
    SMALL_STEPS,
    GameRecipe,
    Teacher,
    place,
    places_text,
    places_vocabulary,
)
from tasks.core.worlds.sokoban.kind import SokobanConfig
from tasks.core.worlds.sokoban.rooms import LETTERS, read_room, shortest_solution
from tasks.core.worlds.sokoban.world import ACTIONS, SMALL, SokobanKind, SokobanTask, draw_room

MARKS = {"I am": "PS", "the box": "X√", "the target": "O√S"}
"""Names in a thought, with the map symbols that show them."""


class SokobanTeacher(Teacher):
    vocabulary = (*places_vocabulary(MARKS), ". Push ", " from ")

    def __init__(self) -> None:
        self.turns = SokobanConfig()
        self.kind = SokobanKind(self.turns)
        self._solution = lru_cache(maxsize=1)(self._shortest)

    def task(self, random: Random) -> SokobanTask:
        room = draw_room(random, *SMALL, self.turns)
        solution = shortest_solution(*read_room(room), self.turns.max_actions) or ""
        return SokobanTask(**FRESH, room=room, solution=solution)

    def advice(self, task: SokobanTask, state: str) -> Sequence[str]:
        return [ACTIONS[task.actions][LETTERS.index(letter)] for letter in self._solution(state)]

    def actions(self, task: SokobanTask, state: str) -> Sequence[str]:
        return ACTIONS[task.actions]

    def reading(self, task: SokobanTask, state: str) -> str:
        """Return the places of things, then the next push and the player's place before it."""
        room, position = read_room(state)
        for letter in self._solution(state):
            following = room.after(position, room.steps[letter])
            assert following is not None, "a solution can be walked"
            if following[1] != position[1]:
                push = ACTIONS[task.actions][LETTERS.index(letter)]
                return f"{places_text(state, MARKS)}Push {push} from {place(state, position[0])}. "
            position = following
        return places_text(state, MARKS)

    def _shortest(self, state: str) -> str:
        return shortest_solution(*read_room(state), 2 * self.turns.max_actions) or ""


RECIPE = GameRecipe(
    teacher=SokobanTeacher,
    sizes=TinyQwen2(layers=3),
    supervised=SMALL_STEPS,
    perfect_demonstrations=50_000,
    perfect_steps=3_500,
    imperfect_demonstrations=2_000,
    imperfect_steps=60,
)
