"""The recipe of the embedded policy of the bandit."""

from tasks.core.text_games.demonstrations import Teacher
from tasks.core.text_games.recipe import SMALL_STEPS, GameRecipe
from tasks.core.worlds.bandit.teacher import BanditTeacher


class BanditRecipe(GameRecipe):
    """The settings of its policy."""

    def teacher(self) -> Teacher:
        return BanditTeacher()


RECIPE = BanditRecipe(
    supervised=SMALL_STEPS,
    perfect_demonstrations=2_000,
    perfect_steps=120,
    imperfect_demonstrations=2_000,
    imperfect_steps=60,
)
