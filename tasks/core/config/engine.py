"""The `engine` section of params.yaml: what samples the turns of rollouts, and how it is reached."""

from typing import Annotated, ClassVar, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from tasks.core.config.chat_api import ChatApiConfig
from tasks.core.config.section import UNVERSIONED, NamedSection, Section


class VllmConfig(Section):
    """vLLM servers (`engine.name: vllm`): our own, or those at `urls`."""

    urls: Annotated[tuple[str, ...], UNVERSIONED] = ()
    """Servers that run already, such as http://node1:8000. Without any, own servers are started. They need the base
    model, the adapters' folder at the same path, and the flags of own servers (see `launching.LaunchSpec.command`)."""
    servers: Annotated[int, UNVERSIONED] = Field(1, ge=1)
    """Own servers, over which rollouts are spread."""
    gpus_per_server: Annotated[int, UNVERSIONED] = Field(1, ge=1)
    """GPUs of an own server (tensor parallelism). Unused on a CPU."""
    sequences: Annotated[int, UNVERSIONED] = Field(256, ge=1)
    """Turns in flight at one server. The others wait in this process."""
    context_length: int | None = Field(None, ge=2)
    """Longest prompt plus turn, in tokens. null: the model's."""
    memory_share: Annotated[float, UNVERSIONED] = Field(0.9, gt=0, lt=1)
    """Share of a GPU's memory for an own server. It holds where the update is not on the same GPU."""
    kv_cache_gib: Annotated[int, UNVERSIONED] = Field(1, ge=1)
    """Key-value cache of an own server on a CPU, in GiB. On a GPU: what is reserved for it where the update is on it
    too."""
    sharing: Annotated[Literal["auto", "alternate", "side_by_side"], UNVERSIONED] = "auto"
    """Whether rollouts and update take turns on a device. alternate: own servers are stopped around the update;
    side_by_side: both stay loaded; auto: as the memory allows."""
    start_timeout_s: Annotated[int, UNVERSIONED] = Field(900, ge=1)
    """Longest start of an own server."""
    turn_timeout_s: Annotated[int, UNVERSIONED] = Field(1800, ge=1)
    """Longest turn, after which a server counts as dead."""
    restarts: Annotated[int, UNVERSIONED] = Field(2, ge=0)
    """Restarts of dead servers during one collection."""
    arguments: tuple[str, ...] = ()
    """More arguments for own servers, as vLLM takes them."""

    @model_validator(mode="after")
    def _found_servers_are_not_ours(self) -> "VllmConfig":
        if self.urls and self.sharing == "alternate":
            raise ValueError(
                "sharing: alternate stops servers, but the pipeline did not start those at `urls`; set it to "
                "side_by_side"
            )
        return self


EngineName = Literal["transformers", "vllm", "oracle", "scripted", "chat_api"]
SAMPLING_ENGINES: frozenset[EngineName] = frozenset({"transformers", "vllm"})
"""Those that sample from the run's own policy: the others recite, or ask a model behind an API."""

IN_PROCESS_ENGINES: frozenset[EngineName] = frozenset({"transformers", "oracle", "scripted"})
"""Those that run in the process that plays the rollouts: the others are shared by all of a machine's processes."""


class EngineSection(NamedSection):
    """The engine's name. A subclass adds the section of its engine, under the engine's name."""

    default_name: ClassVar = "transformers"

    name: EngineName
    """Engine that samples the turns. transformers: this process. vllm: servers. oracle recites the
    world's own solutions, scripted does so with seeded flaws: the pipeline without a model. chat_api asks a model
    behind an OpenAI-compatible API, which can be scored (iterations: 0) but not trained."""


class TransformersSection(EngineSection):
    """The engine in this process."""

    name: Literal["transformers"] = "transformers"


class OracleSection(EngineSection):
    """The world's own solutions."""

    name: Literal["oracle"] = "oracle"


class ScriptedSection(EngineSection):
    """The world's own solutions, with seeded flaws."""

    name: Literal["scripted"] = "scripted"


class VllmSection(EngineSection):
    """vLLM servers."""

    name: Literal["vllm"] = "vllm"
    vllm: VllmConfig = VllmConfig()
    """vLLM servers, our own or those at `urls`."""


class ChatApiSection(EngineSection):
    """A model behind an API."""

    name: Literal["chat_api"] = "chat_api"
    chat_api: ChatApiConfig = ChatApiConfig()
    """A model behind an API."""


EngineConfig = Annotated[
    Annotated[TransformersSection, Tag("transformers")]
    | Annotated[VllmSection, Tag("vllm")]
    | Annotated[OracleSection, Tag("oracle")]
    | Annotated[ScriptedSection, Tag("scripted")]
    | Annotated[ChatApiSection, Tag("chat_api")],
    Discriminator(EngineSection.name_of),
]
"""The section `engine`: of the engine that `name` says, and only that."""
