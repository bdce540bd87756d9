"""Demonstrations of Sokoban: the shortest solution from wherever the boxes are."""

from collections.abc import Sequence
from random import Random

from tasks.core.config.text_games import SokobanConfig
from tasks.core.worlds.sokoban.authoring import SMALL, SokobanTask, draw_room
from tasks.core.worlds.sokoban.rooms import LETTERS, read_room, shortest_solution
from tasks.core.worlds.sokoban.world import ACTIONS, SokobanKind


class SokobanTeacher:
    """See `tasks.core.worlds.text_games.demonstrations.Teacher`."""

    vocabulary: Sequence[str] = ()

    def __init__(self) -> None:
        self.turns = SokobanConfig()
        self.kind = SokobanKind(self.turns)

    def task(self, random: Random) -> SokobanTask:
        room = draw_room(random, *SMALL, self.turns)
        solution = shortest_solution(*read_room(room), self.turns.max_actions) or ""
        return SokobanTask(
            task_id="demonstration",
            scenario_id="demonstration",
            difficulty=1,
            split="train",
            room=room,
            solution=solution,
        )

    def advice(self, task: SokobanTask, state: str) -> Sequence[str]:
        solution = shortest_solution(*read_room(state), 2 * self.turns.max_actions) or ""
        return [ACTIONS[task.actions][LETTERS.index(letter)] for letter in solution]

    def actions(self, task: SokobanTask, state: str) -> Sequence[str]:
        return ACTIONS[task.actions]

    def names(self, task: SokobanTask) -> Sequence[str]:
        return ACTIONS[task.actions]
