"""vLLM's section of params.yaml."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from tasks.core.config.section import UNVERSIONED, Section

LONGEST_START_S = 900
"""Longest start of an own server: a large model is read, and its kernels are compiled."""
LONGEST_TURN_S = 1800
"""Longest turn, after which a server counts as dead."""
LEAST_TEMPERATURE = 0.01
"""vLLM's lowest sampling temperature."""


class VllmConfig(Section):
    """vLLM servers (`engine.name: vllm`): our own, or those at `urls`."""

    constants: ClassVar[Mapping[str, str]] = {
        "start_timeout_s": f"{LONGEST_START_S}",
        "turn_timeout_s": f"{LONGEST_TURN_S}",
    }

    urls: Annotated[tuple[str, ...], UNVERSIONED] = ()
    """Servers that run already, such as http://node1:8000. Without any, own servers are started. They need the base
    model, the flags of own servers (see `launching.LaunchSpec.command`), and the project's folder at the same path."""
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
    restarts: Annotated[int, UNVERSIONED] = Field(2, ge=0)
    """Restarts of dead servers during one collection."""
    batch_invariant: bool = False
    """Start own servers in vLLM's batch-invariant mode. On GPUs alone; it never ran here. A turn's bits then depend on
    its conversation, policy and seed, and on nothing else that the server does."""
    arguments: tuple[str, ...] = ()
    """More arguments for own servers, as vLLM takes them."""

    @model_validator(mode="after")
    def _found_servers_are_not_ours(self) -> "VllmConfig":
        if self.urls and self.sharing == "alternate":
            raise ValueError(
                "sharing: alternate stops servers, but the pipeline did not start those at `urls`; set it to "
                "side_by_side"
            )
        if self.urls and self.batch_invariant:
            raise ValueError(
                "batch_invariant: the pipeline did not start the servers at `urls`; set VLLM_BATCH_INVARIANT=1 where "
                "they start, and this to false"
            )
        return self
