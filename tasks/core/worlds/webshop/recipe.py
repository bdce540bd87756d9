"""The recipe of the embedded policy of WebShop."""

from tasks.core.policies.architecture import TinyQwen2
from tasks.core.policies.supervised import SupervisedSettings
from tasks.core.text_games.demonstrations import Teacher
from tasks.core.text_games.recipe import GameRecipe
from tasks.core.worlds.webshop.teacher import WebShopTeacher


class WebShopRecipe(GameRecipe):
    """The settings of its policy."""

    def teacher(self) -> Teacher:
        return WebShopTeacher()


RECIPE = WebShopRecipe(
    sizes=TinyQwen2(context_length=4096),
    supervised=SupervisedSettings(tokens_per_forward=2048),
    perfect_demonstrations=6_000,
    perfect_steps=1_000,
    imperfect_demonstrations=600,
    imperfect_steps=30,
)
