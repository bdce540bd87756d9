"""The face of the world key_value: what `loopline.worlds` names in pyproject.toml."""

from loopline_key_value.settings import KeyValueConfig
from tasks.core.config.kinds import Late
from tasks.core.interfaces.world_kind import WorldKind

WORLD = WorldKind(
    settings=KeyValueConfig,
    write=Late("loopline_key_value.world:write_key_value"),
    open=Late("loopline_key_value.world:open_key_value"),
)
