"""The face of the engine `oracle`."""

from tasks.core.interfaces.engine import Engine
from tasks.core.interfaces.engine_kind import EngineNeeds
from tasks.core.recital_kind import RecitalKind


class Oracle(RecitalKind):
    """Recite the world's own solutions."""

    name = "oracle"

    def open(self, settings: None, needs: EngineNeeds) -> Engine:
        from tasks.core.recital import oracle_engine

        return oracle_engine(needs.world, needs.chat)


ENGINE = Oracle()
