"""The face of the engine `scripted`."""

from tasks.core.interfaces.engine import Engine
from tasks.core.interfaces.engine_kind import EngineNeeds
from tasks.core.recital_kind import RecitalKind


class Scripted(RecitalKind):
    """Recite the world's own solutions, with seeded flaws."""

    name = "scripted"

    def open(self, settings: None, needs: EngineNeeds) -> Engine:
        from tasks.core.recital import flawed_engine

        return flawed_engine(needs.world, needs.chat)


ENGINE = Scripted()
