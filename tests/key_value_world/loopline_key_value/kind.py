"""The face of the world key_value: what `loopline.worlds` names in pyproject.toml."""

from pathlib import Path

from loopline_key_value.settings import KeyValueConfig
from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.world import World
from tasks.core.interfaces.world_kind import WorldKind


class KeyValue(WorldKind[KeyValueConfig]):
    """Bring the entries of a store to a goal."""

    settings = KeyValueConfig

    def write(self, settings: KeyValueConfig, seed: int, folder: Path) -> None:
        from loopline_key_value.world import write_key_value

        write_key_value(settings, seed, folder)

    def open(self, settings: KeyValueConfig, code_blocks: CodeBlocks, folder: Path) -> World:
        from loopline_key_value.world import open_key_value

        return open_key_value(settings, folder)


WORLD = KeyValue()
