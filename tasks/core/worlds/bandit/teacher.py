"""Demonstrations of the bandit: meaningless names teach a policy to say an arm's name.

Of the unseen arms only the names occur; the demonstrations do not reveal which arm is better.
"""

from collections.abc import Sequence
from random import Random

from tasks.core.text_games.demonstrations import FRESH, SMALL_STEPS, GameRecipe, Teacher
from tasks.core.worlds.bandit.kind import BanditConfig
from tasks.core.worlds.bandit.world import TRAINED, UNSEEN, BanditKind, BanditTask

OTHERS = ("Oak", "Wind", "River", "Stone", "Lantern", "Meadow", "Harbour", "Thunder", "Pebble", "Falcon", *UNSEEN)
TRAINED_SHARE = 0.3


class BanditTeacher(Teacher):
    def __init__(self) -> None:
        self.turns = BanditConfig()
        self.kind = BanditKind()

    def task(self, random: Random) -> BanditTask:
        safe, risky = TRAINED if random.random() < TRAINED_SHARE else random.sample(OTHERS, 2)
        return BanditTask(**FRESH, safe=safe, risky=risky, risky_first=random.random() < 0.5)

    def advice(self, task: BanditTask, state: str) -> Sequence[str]:
        """Return nothing: a player who knows no rewards takes either arm."""
        return ()

    def actions(self, task: BanditTask, state: str) -> Sequence[str]:
        return task.arms


RECIPE = GameRecipe(
    teacher=BanditTeacher,
    supervised=SMALL_STEPS,
    perfect_demonstrations=2_000,
    perfect_steps=120,
    imperfect_demonstrations=2_000,
    imperfect_steps=60,
)
