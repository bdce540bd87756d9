"""The recipe of the embedded policy of Sokoban."""

from tasks.core.policies.architecture import TinyQwen2
from tasks.core.text_games.demonstrations import Teacher
from tasks.core.text_games.recipe import SMALL_STEPS, GameRecipe
from tasks.core.worlds.sokoban.teacher import SokobanTeacher


class SokobanRecipe(GameRecipe):
    """The settings of its policy."""

    def teacher(self) -> Teacher:
        return SokobanTeacher()


RECIPE = SokobanRecipe(
    sizes=TinyQwen2(layers=3),
    supervised=SMALL_STEPS,
    perfect_demonstrations=50_000,
    perfect_steps=3_500,
    imperfect_demonstrations=2_000,
    imperfect_steps=60,
)
