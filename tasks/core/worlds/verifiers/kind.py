"""The face of the environments of verifiers."""

from tasks.core.config.kinds import Late
from tasks.core.interfaces.world_kind import WorldKind
from tasks.core.worlds.verifiers.interpreter import VERIFIERS
from tasks.core.worlds.verifiers.settings import VerifiersConfig

WORLD = WorldKind(
    settings=VerifiersConfig,
    write=Late("tasks.core.worlds.verifiers.world:write_verifiers"),
    open=Late("tasks.core.worlds.verifiers.world:open_verifiers"),
    interpreters=(VERIFIERS,),
)
