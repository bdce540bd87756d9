"""Demonstrations of the bandit. Names that mean nothing teach to say an arm's name; of the unseen ones only the names
occur, and which arm is better is not told."""

from collections.abc import Sequence
from random import Random

from tasks.core.config.text_games import BanditConfig
from tasks.core.worlds.bandit.world import TRAINED, UNSEEN, BanditKind, BanditTask

OTHERS = ("Oak", "Wind", "River", "Stone", "Lantern", "Meadow", "Harbour", "Thunder", "Pebble", "Falcon", *UNSEEN)
TRAINED_SHARE = 0.3


class BanditTeacher:
    """See `tasks.core.worlds.text_games.demonstrations.Teacher`."""

    vocabulary: Sequence[str] = ()

    def __init__(self) -> None:
        self.turns = BanditConfig()
        self.kind = BanditKind(self.turns)

    def task(self, random: Random) -> BanditTask:
        safe, risky = TRAINED if random.random() < TRAINED_SHARE else random.sample(OTHERS, 2)
        return BanditTask(
            task_id="demonstration",
            scenario_id="demonstration",
            difficulty=1,
            split="train",
            safe=safe,
            risky=risky,
            risky_first=random.random() < 0.5,
        )

    def advice(self, task: BanditTask, state: str) -> Sequence[str]:
        """Nothing: a player who knows no rewards takes either arm."""
        return ()

    def actions(self, task: BanditTask, state: str) -> Sequence[str]:
        return task.arms

    def reading(self, task: BanditTask, state: str) -> str:
        return ""

    def names(self, task: BanditTask) -> Sequence[str]:
        return task.arms
