"""The face of bandit."""

from functools import partial
from pathlib import Path

from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.world import World
from tasks.core.interfaces.world_kind import Demonstrations, PolicyRecipe, WorldKind
from tasks.core.worlds.bandit.settings import BanditConfig


class Bandit(WorldKind[BanditConfig]):
    """Pull one of two arms."""

    settings = BanditConfig

    def write(self, settings: BanditConfig, seed: int, folder: Path) -> None:
        from tasks.core.worlds.bandit.world import write_bandit

        write_bandit(settings, seed, folder)

    def open(self, settings: BanditConfig, code_blocks: CodeBlocks, folder: Path) -> World:
        from tasks.core.worlds.bandit.world import open_bandit

        return open_bandit(settings, folder)

    def demonstrations(self) -> Demonstrations:
        from tasks.core.text_games.demonstrations import demonstrations
        from tasks.core.worlds.bandit.teacher import BanditTeacher

        return partial(demonstrations, BanditTeacher())

    def recipe(self) -> PolicyRecipe:
        from tasks.core.worlds.bandit.recipe import RECIPE

        return RECIPE


WORLD = Bandit()
