"""One device for rollouts and update: side by side where both fit, in turns otherwise."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tasks.core.capacity.flops import ModelShape
from tasks.core.capacity.memory import engine_memory, learner_memory
from tasks.core.config.engine import VllmConfig
from tasks.core.config.policy import PolicyConfig
from tasks.core.config.update import UpdateConfig

GIB = 2**30
_SERVER_OVERHEAD = 1.2
"""Of the weights: what a server needs besides its key-value cache."""
_UPDATE = UpdateConfig(activation_checkpointing=True)
"""Assumed: the update's own settings are not the collection's to read, or a change of one would collect anew."""


@dataclass(frozen=True)
class Sharing:
    """How the device is shared."""

    takes_turns: bool
    memory_share: float
    """Of the device's memory, what each server may take."""
    reason: str


def needed_bytes(
    model: Mapping[str, Any], policy: PolicyConfig, context_length: int | None, tensor_parallel: int
) -> tuple[float, float]:
    """(server's weights, learner) on one device, by the model of `flows.plan`, for the config.json `model`.

    The learner passes one rollout as long as the context, on one rank, with activation checkpointing.
    """
    shape, length = ModelShape.of_config(model), context_length or int(model["max_position_embeddings"])
    server = engine_memory(shape, policy, tensor_parallel)
    learner = learner_memory(shape, policy, _UPDATE, length, length - 1, ranks=1)
    return server.weights + server.adapter, learner.total


def choose_sharing(config: VllmConfig, *, weights: float, learner: float, memory: int, servers: int) -> Sharing:
    """Decide by bytes: `weights` of a server, the `learner`, and `memory` of the device, which has `servers` on it."""
    server = _SERVER_OVERHEAD * weights + config.kv_cache_gib * GIB
    needed = servers * server + learner
    takes_turns = config.sharing == "alternate" or (config.sharing == "auto" and needed > memory)
    share = config.memory_share if takes_turns else min(config.memory_share, server / memory)
    mode = "take turns (servers are stopped around the update)" if takes_turns else "run side by side"
    why = f"both need about {needed / GIB:.1f} GiB of {memory / GIB:.1f} GiB"
    return Sharing(takes_turns, share, f"rollouts and update {mode}: {config.sharing}, {why}")
