"""The part that the faces of engines that recite have in common (see `recital`)."""

from typing import ClassVar

from tasks.core.interfaces.engine_kind import EngineKind


class RecitalKind(EngineKind[None]):
    """An engine that recites. It samples nothing, so that a temperature changes nothing."""

    name: ClassVar[str]
    samples_policy = False

    def check_sampling(
        self, settings: None, section: str, temperature: float, top_k: int = 0, top_p: float = 1.0
    ) -> None:
        for knob, value, unset in (("top_k", top_k, 0), ("top_p", top_p, 1.0)):
            if value != unset:
                raise ValueError(
                    f"{section}.{knob}: the engine {self.name} recites and samples nothing; set it to {unset}"
                )
