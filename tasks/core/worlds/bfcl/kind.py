"""The face of BFCL."""

from tasks.core.config.kinds import Late
from tasks.core.interfaces.world_kind import WorldKind
from tasks.core.worlds.bfcl.interpreter import BFCL
from tasks.core.worlds.bfcl.settings import BfclConfig

WORLD = WorldKind(
    settings=BfclConfig,
    write=Late("tasks.core.worlds.bfcl.world:write_bfcl"),
    open=Late("tasks.core.worlds.bfcl.world:open_bfcl"),
    interpreters=(BFCL,),
    write_results=Late("tasks.core.worlds.bfcl.export:write_trials"),
    export=Late("tasks.core.worlds.bfcl.export:export"),
)
