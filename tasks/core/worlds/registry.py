"""From the name of a world in params.yaml to the world."""

from pathlib import Path

from tasks.core.config.world import WorldConfig
from tasks.core.interfaces.world import World
from tasks.core.worlds.pocketworld.authoring.scenarios import generate_specs
from tasks.core.worlds.pocketworld.files import read_specs, write_specs
from tasks.core.worlds.pocketworld.world import PocketWorld
from tasks.core.worlds.sandbox import Sandbox, SandboxLimits


def prepare_world_folder(config: WorldConfig, folder: Path) -> None:
    """Generate the world's tasks from `config.seed` and write them to `folder`, whole or not at all."""
    if config.name == "appworld":
        from tasks.core.worlds.appworld.root import prepare_root

        print(f"AppWorld root: {prepare_root(config, folder).summary}")
        return
    write_specs(folder, generate_specs(config.seed))


def open_world(config: WorldConfig, folder: Path) -> World:
    """Open the world that `prepare_world_folder` wrote. Raises ArtifactError naming file, line and rule."""
    if config.name == "appworld":
        from tasks.core.worlds.appworld.opening import open_appworld

        return open_appworld(config, folder)
    specs = read_specs(folder)
    sandbox = Sandbox(SandboxLimits())
    return PocketWorld(specs, sandbox.start, sandbox.close, config.code_blocks)
