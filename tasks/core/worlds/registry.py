"""Worlds by their names in params.yaml. Imports are lazy, so that no world needs another world's packages."""

from pathlib import Path

from tasks.core.config.world import (
    AppWorldSection,
    BanditSection,
    BfclSection,
    FrozenLakeSection,
    OpenEnvSection,
    PocketworldSection,
    ScienceWorldSection,
    SokobanSection,
    WebShopSection,
    WorldConfig,
)
from tasks.core.interfaces.world import World


def prepare_world_folder(config: WorldConfig, folder: Path) -> None:
    """Generate the world's tasks from `config.seed` and write them to `folder`, whole or not at all."""
    match config:
        case AppWorldSection():
            from tasks.core.worlds.appworld.root import prepare_root

            print(f"AppWorld root: {prepare_root(config, folder).summary}")
        case BanditSection():
            from tasks.core.worlds.bandit.world import write_bandit

            write_bandit(config.bandit, config.seed, folder)
        case BfclSection():
            from tasks.core.worlds.bfcl.world import write_bfcl

            write_bfcl(config.seed, folder)
        case FrozenLakeSection():
            from tasks.core.worlds.frozen_lake.world import write_frozen_lake

            write_frozen_lake(config.frozen_lake, config.seed, folder)
        case OpenEnvSection():
            from tasks.core.worlds.openenv.tasks import write_openenv

            write_openenv(config.openenv, config.seed, folder)
        case ScienceWorldSection():
            from tasks.core.worlds.scienceworld.authoring import write_scienceworld

            write_scienceworld(config.scienceworld, config.seed, folder)
        case SokobanSection():
            from tasks.core.worlds.sokoban.world import write_sokoban

            write_sokoban(config.sokoban, config.seed, folder)
        case WebShopSection():
            from tasks.core.worlds.webshop.world import write_webshop

            write_webshop(config.webshop, config.seed, folder)
        case PocketworldSection():
            from tasks.core.worlds.pocketworld.authoring.scenarios import generate_specs
            from tasks.core.worlds.pocketworld.world import write_specs

            write_specs(folder, generate_specs(config.seed, config.pocketworld))


def open_world(config: WorldConfig, folder: Path) -> World:
    """Open the world that `prepare_world_folder` wrote. Raises ArtifactError naming file, line and rule."""
    match config:
        case AppWorldSection():
            from tasks.core.worlds.appworld.opening import open_appworld

            return open_appworld(config, folder)
        case BanditSection():
            from tasks.core.worlds.bandit.world import open_bandit

            return open_bandit(config.bandit, folder)
        case BfclSection():
            from tasks.core.worlds.bfcl.world import open_bfcl

            return open_bfcl(config.bfcl, folder)
        case FrozenLakeSection():
            from tasks.core.worlds.frozen_lake.world import open_frozen_lake

            return open_frozen_lake(config.frozen_lake, folder)
        case OpenEnvSection():
            from tasks.core.worlds.openenv.world import open_openenv

            return open_openenv(config.openenv, config.code_blocks, folder)
        case ScienceWorldSection():
            from tasks.core.worlds.scienceworld.world import open_scienceworld

            return open_scienceworld(config.scienceworld, folder)
        case SokobanSection():
            from tasks.core.worlds.sokoban.world import open_sokoban

            return open_sokoban(config.sokoban, folder)
        case WebShopSection():
            from tasks.core.worlds.webshop.world import open_webshop

            return open_webshop(config.webshop, folder)
        case PocketworldSection():
            return _open_pocketworld(config, folder)


def _open_pocketworld(config: PocketworldSection, folder: Path) -> World:
    from tasks.core.sandbox import Sandbox, SandboxLimits
    from tasks.core.worlds.pocketworld.world import PocketWorld, read_specs

    specs = read_specs(folder)
    sandbox = Sandbox(SandboxLimits())
    return PocketWorld(specs, sandbox.start, sandbox.close, config.code_blocks)
