"""The `engine` section of params.yaml. The section of an engine stands in its folder (tasks/core/engines/)."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol

from pydantic import BeforeValidator, SerializeAsAny

from tasks.core.config.kind_section import KindSection
from tasks.core.config.kinds import Kinds

ENGINES = Kinds("engine", "tasks.core.engines", "ENGINE", "loopline.engines")


class SharedDevice(Protocol):
    """How servers of ours share the device of the update."""

    @property
    def sharing(self) -> Literal["auto", "alternate", "side_by_side"]: ...

    @property
    def memory_share(self) -> float: ...

    @property
    def kv_cache_gib(self) -> int: ...


class Rates(Protocol):
    """Prices, and limits for each minute (None: none)."""

    @property
    def requests_per_minute(self) -> int | None: ...

    @property
    def tokens_per_minute(self) -> int | None: ...

    def cost_usd(self, prompt: int, cached: int, sampled: int) -> float:
        """Return the US dollars for these numbers of prompt tokens, cached prompt tokens and sampled tokens."""
        ...


@dataclass(frozen=True)
class PaidModel:
    """A model whose turns are paid for."""

    name: str
    rates: Rates


class EngineSection(KindSection):
    """The engine's name, and the section of the engine that plays, under its name."""

    kinds: ClassVar = ENGINES
    default_name: ClassVar = "transformers"
    reciting_name: ClassVar = "oracle"
    """The engine that plays demonstrations (`collection.demonstrations`)."""

    name: str
    """Engine that samples the turns. transformers: this process. vllm: servers. oracle recites the
    world's own solutions, scripted does so with seeded flaws: the pipeline without a model. chat_api asks a model
    behind an OpenAI-compatible API, which can be scored (iterations: 0) but not trained."""

    @property
    def kind(self) -> Any:
        """The engine's face, an EngineKind (tasks/core/interfaces/engine_kind.py)."""
        return ENGINES.find(self.name)


EngineConfig = Annotated[SerializeAsAny[EngineSection], BeforeValidator(EngineSection.chosen)]
"""The section `engine`: of the engine that `name` says, and only that."""


def serving_lines(source: str, revision: str | None, rank: int | None, adapter: str) -> list[str]:
    """Return the command lines by which engines serve a policy (`EngineKind.serving`)."""
    lines = (ENGINES.find(name).serving(source, revision, rank, adapter) for name in ENGINES.names())
    return [line for line in lines if line]
