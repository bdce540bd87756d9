"""The face of ScienceWorld."""

from tasks.core.config.kinds import Late
from tasks.core.interfaces.world_kind import WorldKind
from tasks.core.worlds.scienceworld.interpreter import SCIENCEWORLD
from tasks.core.worlds.scienceworld.settings import ScienceWorldConfig

WORLD = WorldKind(
    settings=ScienceWorldConfig,
    write=Late("tasks.core.worlds.scienceworld.authoring:write_scienceworld"),
    open=Late("tasks.core.worlds.scienceworld.world:open_scienceworld"),
    interpreters=(SCIENCEWORLD,),
)
