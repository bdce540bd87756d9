"""The `engine` section of params.yaml: settings of the engines that run outside this process."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tasks.core.config.section import UNVERSIONED, Section


class VllmConfig(Section):
    """vLLM servers (`collection.engine: vllm`): our own, or those at `urls`."""

    urls: Annotated[tuple[str, ...], UNVERSIONED] = ()
    """Servers that are there already, such as http://node1:8000; none: own ones are started. They need the base model,
    the adapters' folder at the same path, and the flags of own servers (see `launching.LaunchSpec.command`)."""
    servers: Annotated[int, UNVERSIONED] = Field(1, ge=1)
    """Number of own servers; rollouts are spread over them."""
    gpus_per_server: Annotated[int, UNVERSIONED] = Field(1, ge=1)
    """Tensor parallelism of an own server. Unused on a CPU."""
    sequences: Annotated[int, UNVERSIONED] = Field(256, ge=1)
    """Turns in flight at one server; the others wait in this process."""
    context_length: int | None = Field(None, ge=2)
    """Longest prompt plus turn, in tokens; None: the model's."""
    memory_share: Annotated[float, UNVERSIONED] = Field(0.9, gt=0, lt=1)
    """Share of a GPU's memory that an own server may take when the update is not beside it."""
    kv_cache_gib: Annotated[int, UNVERSIONED] = Field(1, ge=1)
    """Key-value cache of an own server on a CPU; on a GPU, what is reserved for it when the update is beside it."""
    sharing: Annotated[Literal["auto", "alternate", "side_by_side"], UNVERSIONED] = "auto"
    """Rollouts and update on one device: in turns (own servers are stopped around the update), or both loaded."""
    start_timeout_s: Annotated[int, UNVERSIONED] = Field(900, ge=1)
    turn_timeout_s: Annotated[int, UNVERSIONED] = Field(1800, ge=1)
    """A server that takes longer over one turn is taken for dead."""
    restarts: Annotated[int, UNVERSIONED] = Field(2, ge=0)
    """Times that a server that died may be started again during one collection."""
    arguments: tuple[str, ...] = ()
    """More arguments for own servers, as vLLM takes them."""

    @model_validator(mode="after")
    def _found_servers_are_not_ours(self) -> "VllmConfig":
        if self.urls and self.sharing == "alternate":
            raise ValueError("sharing: alternate stops servers, and those at `urls` are not ours to stop")
        return self


class EngineConfig(Section):
    """Engines outside this process."""

    vllm: VllmConfig = VllmConfig()
