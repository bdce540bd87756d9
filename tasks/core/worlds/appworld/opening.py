"""The world that the section `world` of params.yaml asks for, on its engine."""

from functools import partial
from pathlib import Path

from tasks.core.config.world import WorldConfig
from tasks.core.worlds.appworld.demonstration import demonstration
from tasks.core.worlds.appworld.interpreter import python_executable
from tasks.core.worlds.appworld.official_server import OfficialServers
from tasks.core.worlds.appworld.pool import EpisodePool
from tasks.core.worlds.appworld.root import read_prepared_root
from tasks.core.worlds.appworld.world import AppWorldTasks


def open_appworld(config: WorldConfig, folder: Path) -> AppWorldTasks:
    """Open the root that `prepare_world` wrote to `folder`. Raises ArtifactError and InterpreterUnavailable."""
    prepared = read_prepared_root(config, folder)
    settings = config.appworld
    recite = partial(demonstration, prepared.root, settings.demonstrated_turns)
    demonstrate = recite if settings.source == "authored" else None
    pool = EpisodePool(python_executable(), prepared.root)
    if settings.engine == "pool":
        return AppWorldTasks(prepared.tasks, pool.open, pool.close, config, demonstrate)
    servers = OfficialServers(python_executable(), prepared.root, pool)

    def close() -> None:
        servers.close()
        pool.close()

    return AppWorldTasks(prepared.tasks, servers.open, close, config, demonstrate)
