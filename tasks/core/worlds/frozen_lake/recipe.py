"""The recipe of the embedded policy of FrozenLake."""

from tasks.core.policies.architecture import TinyQwen2
from tasks.core.text_games.demonstrations import Teacher
from tasks.core.text_games.recipe import SMALL_STEPS, GameRecipe
from tasks.core.worlds.frozen_lake.teacher import FrozenLakeTeacher


class FrozenLakeRecipe(GameRecipe):
    """The settings of its policy."""

    def teacher(self) -> Teacher:
        return FrozenLakeTeacher()


RECIPE = FrozenLakeRecipe(
    sizes=TinyQwen2(layers=3),
    supervised=SMALL_STEPS,
    perfect_demonstrations=20_000,
    perfect_steps=1_600,
    imperfect_demonstrations=2_000,
    imperfect_steps=60,
)
