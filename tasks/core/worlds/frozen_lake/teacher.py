"""Demonstrations of FrozenLake: plans of two steps that most likely lead to the goal, despite slipping."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from random import Random
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tasks.core.policies.architecture import TinyQwen2
from tasks.core.text_games.demonstrations import cell_of, places_text, places_vocabulary
from tasks.core.text_games.recipe import SMALL_STEPS, GameRecipe
from tasks.core.worlds.frozen_lake.kind import FrozenLakeConfig
from tasks.core.worlds.frozen_lake.maps import MOVES, FrozenLakeTask, draw_maps
from tasks.core.worlds.frozen_lake.world import FrozenLakeKind, Transitions

MARKS = {"I am": "PX√", "the goal": "G√"}
"""Names in a thought, with the map symbols that show them."""
PLAN = 2
"""Steps before looking again. This solves 44% of 1,500 tasks; the shortest way, or walking straight, solves 33%."""
DISCOUNT = 0.8
"""Per step: there are only ten steps, so a long detour is not safe."""
_SWEEPS = 60
Floats = NDArray[np.float64]


class FrozenLakeTeacher:
    """A `Teacher` (see `tasks.core.text_games.demonstrations`)."""

    vocabulary: Sequence[str] = places_vocabulary(MARKS)

    def __init__(self) -> None:
        self.turns = FrozenLakeConfig()
        self.kind = FrozenLakeKind(self.turns)
        self._plans = lru_cache(maxsize=4096)(self._plans_on)

    def task(self, random: Random) -> FrozenLakeTask:
        while not (maps := list(draw_maps(random, self.turns.size, self.turns))):
            pass
        return FrozenLakeTask(
            task_id="demonstration", scenario_id="demonstration", difficulty=1, split="train", map=maps[0]
        )

    def advice(self, task: FrozenLakeTask, state: str) -> Sequence[str]:
        return self._plans(task.map)[cell_of(state.replace("\n", ""), MARKS["I am"])]

    def actions(self, task: FrozenLakeTask, state: str) -> Sequence[str]:
        return tuple(MOVES)

    def reading(self, task: FrozenLakeTask, state: str) -> str:
        return places_text(state, MARKS)

    def names(self, task: FrozenLakeTask) -> Sequence[str]:
        return tuple(MOVES)

    def _plans_on(self, rows: tuple[str, ...]) -> list[tuple[str, ...]]:
        return careful_plans(self.kind.transitions(rows), "".join(rows))


def careful_plans(transitions: Transitions, ice: str) -> list[tuple[str, ...]]:
    """Return the best `PLAN` steps from each cell of a map (S, F, H, G), by value iteration; the first among equals."""
    moves = _moves(transitions)
    value = _values(moves, ice)
    plans = list(product(range(len(MOVES)), repeat=PLAN))
    worth = np.stack([_after(moves, plan, value) for plan in plans])
    return [tuple(list(MOVES)[step] for step in plans[best]) for best in np.argmax(np.round(worth, 9), axis=0)]


def _moves(transitions: Transitions) -> Floats:
    """Return probabilities [move, from, to]; holes and goal are never left, as in gymnasium."""
    moves = np.zeros((len(MOVES), len(transitions), len(transitions)))
    for cell, by_move in transitions.items():
        for move, possible in by_move.items():
            for chance, following, _, _ in possible:
                moves[move, cell, following] += chance
    return moves


def _values(moves: Floats, ice: str) -> Floats:
    """Return the discounted probability [cell] of reaching the goal."""
    goal = np.array([float(symbol == "G") for symbol in ice])
    value = goal
    for _ in range(_SWEEPS):
        value = np.maximum(goal, DISCOUNT * (moves @ value).max(axis=0))
    return value


def _after(moves: Floats, plan: Sequence[int], value: Floats) -> Floats:
    for step in reversed(plan):
        value = moves[step] @ value
    return value


class FrozenLakeRecipe(GameRecipe):
    """The settings of its policy."""

    teacher: ClassVar = FrozenLakeTeacher


RECIPE = FrozenLakeRecipe(
    sizes=TinyQwen2(layers=3),
    supervised=SMALL_STEPS,
    perfect_demonstrations=20_000,
    perfect_steps=1_600,
    imperfect_demonstrations=2_000,
    imperfect_steps=60,
)
