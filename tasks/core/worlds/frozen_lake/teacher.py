"""Demonstrations of FrozenLake: along the shortest way from wherever the ice has led."""

from collections.abc import Sequence
from random import Random

from tasks.core.config.text_games import FrozenLakeConfig
from tasks.core.worlds.frozen_lake.maps import MOVES, FrozenLakeTask, draw_maps, shortest_way
from tasks.core.worlds.frozen_lake.world import SYMBOLS, FrozenLakeKind


class FrozenLakeTeacher:
    """See `tasks.core.worlds.text_games.demonstrations.Teacher`."""

    vocabulary: Sequence[str] = ()

    def __init__(self) -> None:
        self.turns = FrozenLakeConfig()
        self.kind = FrozenLakeKind(self.turns)

    def task(self, random: Random) -> FrozenLakeTask:
        while not (maps := list(draw_maps(random, self.turns.size, self.turns))):
            pass
        return FrozenLakeTask(
            task_id="demonstration", scenario_id="demonstration", difficulty=1, split="train", map=maps[0]
        )

    def advice(self, task: FrozenLakeTask, state: str) -> Sequence[str]:
        return shortest_way(state.translate(str.maketrans(SYMBOLS[:4], "SFHG")).split("\n"))

    def actions(self, task: FrozenLakeTask, state: str) -> Sequence[str]:
        return tuple(MOVES)

    def names(self, task: FrozenLakeTask) -> Sequence[str]:
        return tuple(MOVES)
