"""The face of frozen_lake."""

from functools import partial
from pathlib import Path

from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.world import World
from tasks.core.interfaces.world_kind import Demonstrations, PolicyRecipe, WorldKind
from tasks.core.worlds.frozen_lake.settings import FrozenLakeConfig


class FrozenLake(WorldKind[FrozenLakeConfig]):
    """Walk over slippery ice to the goal."""

    settings = FrozenLakeConfig

    def write(self, settings: FrozenLakeConfig, seed: int, folder: Path) -> None:
        from tasks.core.worlds.frozen_lake.world import write_frozen_lake

        write_frozen_lake(settings, seed, folder)

    def open(self, settings: FrozenLakeConfig, code_blocks: CodeBlocks, folder: Path) -> World:
        from tasks.core.worlds.frozen_lake.world import open_frozen_lake

        return open_frozen_lake(settings, folder)

    def demonstrations(self) -> Demonstrations:
        from tasks.core.text_games.demonstrations import demonstrations
        from tasks.core.worlds.frozen_lake.teacher import FrozenLakeTeacher

        return partial(demonstrations, FrozenLakeTeacher())

    def recipe(self) -> PolicyRecipe:
        from tasks.core.worlds.frozen_lake.recipe import RECIPE

        return RECIPE


WORLD = FrozenLake()
