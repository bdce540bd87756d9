"""The face of pocketworld."""

from pathlib import Path

from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.world import World
from tasks.core.interfaces.world_kind import Demonstrations, PolicyRecipe, WorldKind
from tasks.core.worlds.pocketworld.settings import PocketworldConfig


class Pocketworld(WorldKind[PocketworldConfig]):
    """Call the APIs of seven small apps."""

    settings = PocketworldConfig

    def write(self, settings: PocketworldConfig, seed: int, folder: Path) -> None:
        from tasks.core.worlds.pocketworld.authoring.scenarios import generate_specs
        from tasks.core.worlds.pocketworld.world import write_specs

        write_specs(folder, generate_specs(seed, settings))

    def open(self, settings: PocketworldConfig, code_blocks: CodeBlocks, folder: Path) -> World:
        from tasks.core.sandbox import Sandbox, SandboxLimits
        from tasks.core.worlds.pocketworld.world import PocketWorld, read_specs

        specs = read_specs(folder)
        sandbox = Sandbox(SandboxLimits())
        return PocketWorld(specs, sandbox.start, sandbox.close, code_blocks)

    def demonstrations(self) -> Demonstrations:
        from tasks.core.worlds.pocketworld.demonstrations import demonstrations

        return demonstrations

    def recipe(self) -> PolicyRecipe:
        from tasks.core.worlds.pocketworld.recipe import RECIPE

        return RECIPE


WORLD = Pocketworld()
