"""The face of servers that speak OpenEnv."""

from pathlib import Path

from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.world import World
from tasks.core.interfaces.world_kind import WorldKind
from tasks.core.worlds.openenv.settings import OpenEnvConfig


class OpenEnv(WorldKind[OpenEnvConfig]):
    """Do whatever a server offers."""

    settings = OpenEnvConfig

    def write(self, settings: OpenEnvConfig, seed: int, folder: Path) -> None:
        from tasks.core.worlds.openenv.tasks import write_openenv

        write_openenv(settings, seed, folder)

    def open(self, settings: OpenEnvConfig, code_blocks: CodeBlocks, folder: Path) -> World:
        from tasks.core.worlds.openenv.world import open_openenv

        return open_openenv(settings, code_blocks, folder)


WORLD = OpenEnv()
