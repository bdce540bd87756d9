"""The face of ScienceWorld."""

from pathlib import Path

from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.world import World
from tasks.core.interfaces.world_kind import WorldKind
from tasks.core.interpreters import InterpreterRecipe
from tasks.core.worlds.scienceworld.settings import ScienceWorldConfig


class ScienceWorld(WorldKind[ScienceWorldConfig]):
    """Do experiments in a house of ten rooms."""

    settings = ScienceWorldConfig

    def write(self, settings: ScienceWorldConfig, seed: int, folder: Path) -> None:
        from tasks.core.worlds.scienceworld.authoring import write_scienceworld

        write_scienceworld(settings, seed, folder)

    def open(self, settings: ScienceWorldConfig, code_blocks: CodeBlocks, folder: Path) -> World:
        from tasks.core.worlds.scienceworld.world import open_scienceworld

        return open_scienceworld(settings, folder)

    def interpreters(self) -> tuple[InterpreterRecipe, ...]:
        from tasks.core.worlds.scienceworld.interpreter import SCIENCEWORLD

        return (SCIENCEWORLD,)


WORLD = ScienceWorld()
