"""Files that stages read and no stage wrote: those that knobs name. DVC watches them as dependencies (dvc.yaml).

DVC keeps the digest of each file by its size, inode and time of change, so that an unchanged model of tens of GB is
read once.
"""

from pathlib import Path

from tasks.core.config.policy import PolicyConfig
from tasks.core.config.section import Section
from tasks.core.config.world import AppWorldSection, WebShopSection, WorldConfig

NO_POLICY_FILES = "data/base_policies"
"""Source of a policy that no folder holds: `recipe`, a package or a hub id, which are pinned by name."""
NO_WORLD_FILES = "tasks/core/worlds/registry.py"
"""Source of a world that code alone makes. DVC wants some path here; the stage's version has this file in any case."""


class Sources(Section):
    """The places of those files, relative to the project's root or absolute."""

    policy: str = NO_POLICY_FILES
    """The folder `policy.source`."""
    world: str = NO_WORLD_FILES
    """The data of the world in use: `world.webshop.root`, or the part of `world.appworld.root` that is only read."""


def sources_of(policy: PolicyConfig, world: WorldConfig) -> Sources:
    """Return the sources that these knobs name."""
    files = Path(policy.source).as_posix() if policy.is_folder else NO_POLICY_FILES
    return Sources(policy=files, world=_world_files(world))


def _world_files(world: WorldConfig) -> str:
    if isinstance(world, WebShopSection) and world.webshop.root is not None:
        return world.webshop.root.as_posix()
    if isinstance(world, AppWorldSection) and world.appworld.root is not None:
        return (world.appworld.root / "data").as_posix()
    return NO_WORLD_FILES
