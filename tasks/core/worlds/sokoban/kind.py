"""The face of sokoban."""

from functools import partial
from pathlib import Path

from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.world import World
from tasks.core.interfaces.world_kind import Demonstrations, PolicyRecipe, WorldKind
from tasks.core.worlds.sokoban.settings import SokobanConfig


class Sokoban(WorldKind[SokobanConfig]):
    """Push boxes onto targets."""

    settings = SokobanConfig

    def write(self, settings: SokobanConfig, seed: int, folder: Path) -> None:
        from tasks.core.worlds.sokoban.world import write_sokoban

        write_sokoban(settings, seed, folder)

    def open(self, settings: SokobanConfig, code_blocks: CodeBlocks, folder: Path) -> World:
        from tasks.core.worlds.sokoban.world import open_sokoban

        return open_sokoban(settings, folder)

    def demonstrations(self) -> Demonstrations:
        from tasks.core.text_games.demonstrations import demonstrations
        from tasks.core.worlds.sokoban.teacher import SokobanTeacher

        return partial(demonstrations, SokobanTeacher())

    def recipe(self) -> PolicyRecipe:
        from tasks.core.worlds.sokoban.recipe import RECIPE

        return RECIPE


WORLD = Sokoban()
