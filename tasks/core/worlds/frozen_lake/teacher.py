"""Demonstrations of FrozenLake: plans of two steps that most likely lead to the goal, despite slipping."""

from collections.abc import Sequence
from functools import lru_cache, reduce
from itertools import product
from random import Random

import numpy as np

from tasks.core.policies.architecture import TinyQwen2
from tasks.core.text_games.demonstrations import (
    FRESH,
    SMALL_STEPS,
    GameRecipe,
    Teacher,
    cell_of,
    places_text,
    places_vocabulary,
)
from tasks.core.worlds.frozen_lake.kind import FrozenLakeConfig
from tasks.core.worlds.frozen_lake.world import MOVES, FrozenLakeKind, FrozenLakeTask, Transitions, draw_maps

MARKS = {"I am": "PX√", "the goal": "G√"}
"""Names in a thought, with the map symbols that show them."""
PLAN = 2
"""Steps before looking again. This solves 44% of 1,500 tasks; the shortest way, or walking straight, solves 33%."""
DISCOUNT = 0.8
"""Per step: there are only ten steps, so a long detour is not safe."""
_SWEEPS = 60


class FrozenLakeTeacher(Teacher):
    vocabulary = places_vocabulary(MARKS)

    def __init__(self) -> None:
        self.turns = FrozenLakeConfig()
        self.kind = FrozenLakeKind(self.turns)
        self._plans = lru_cache(maxsize=4096)(lambda rows: careful_plans(self.kind.transitions(rows), "".join(rows)))

    def task(self, random: Random) -> FrozenLakeTask:
        while not (maps := list(draw_maps(random, self.turns.size, self.turns))):
            pass
        return FrozenLakeTask(**FRESH, map=maps[0])

    def advice(self, task: FrozenLakeTask, state: str) -> Sequence[str]:
        return self._plans(task.map)[cell_of(state.replace("\n", ""), MARKS["I am"])]

    def actions(self, task: FrozenLakeTask, state: str) -> Sequence[str]:
        return tuple(MOVES)

    def reading(self, task: FrozenLakeTask, state: str) -> str:
        return places_text(state, MARKS)


def careful_plans(transitions: Transitions, ice: str) -> list[tuple[str, ...]]:
    """Return the best `PLAN` steps from each cell of a map (S, F, H, G), by value iteration; the first among equals."""
    moves = np.zeros((len(MOVES), len(transitions), len(transitions)))
    """Probabilities [move, from, to]; holes and goal are never left, as in gymnasium."""
    for cell, by_move in transitions.items():
        for move, possible in by_move.items():
            for chance, following, _, _ in possible:
                moves[move, cell, following] += chance
    value = goal = np.array([float(symbol == "G") for symbol in ice])
    """Discounted probability [cell] of reaching the goal."""
    for _ in range(_SWEEPS):
        value = np.maximum(goal, DISCOUNT * (moves @ value).max(axis=0))
    plans = list(product(range(len(MOVES)), repeat=PLAN))
    worth = np.stack([reduce(lambda after, step: moves[step] @ after, reversed(plan), value) for plan in plans])
    return [tuple(list(MOVES)[step] for step in plans[best]) for best in np.argmax(np.round(worth, 9), axis=0)]


RECIPE = GameRecipe(
    teacher=FrozenLakeTeacher,
    sizes=TinyQwen2(layers=3),
    supervised=SMALL_STEPS,
    perfect_demonstrations=20_000,
    perfect_steps=1_600,
    imperfect_demonstrations=2_000,
    imperfect_steps=60,
)
