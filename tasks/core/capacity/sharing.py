"""Sharing of one device by rollouts and update: side by side where both fit, in turns otherwise."""

from dataclasses import dataclass

from tasks.core.capacity.hardware import GIB
from tasks.core.config.engine import VllmConfig

_SERVER_OVERHEAD = 1.2
"""Share of the weights that a server needs besides its key-value cache."""


@dataclass(frozen=True)
class Sharing:
    """The decision for one device."""

    releases_device: bool
    """Whether the servers are stopped around the update."""
    memory_share: float
    """Share of the device's memory that each server may take."""
    reason: str


def choose_sharing(config: VllmConfig, *, weights: float, learner: float | None, memory: int, servers: int) -> Sharing:
    """Decide by bytes: `weights` of a server, the `learner`, and `memory` of the device, which has `servers` on it.

    `weights` and `learner` come from `memory_of(...)`, so that plan and engine decide alike. `learner` None: no update
    will need the device.
    """
    server = _SERVER_OVERHEAD * weights + config.kv_cache_gib * GIB
    needed = servers * server + (learner or 0.0)
    alternate = config.sharing == "alternate" or (config.sharing == "auto" and learner is not None and needed > memory)
    whole = alternate or learner is None
    share = config.memory_share if whole else min(config.memory_share, server / memory)
    mode = "take turns (servers are stopped around the update)" if alternate else "run side by side"
    why = f"both need about {needed / GIB:.1f} GiB of {memory / GIB:.1f} GiB" if learner else "nothing is trained"
    return Sharing(alternate, share, f"rollouts and update {mode}: {config.sharing}, {why}")
