"""Figures of a collection: tokens, seconds, how rollouts ended."""

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tasks.core.records.documents import Timings

_log = logging.getLogger(__name__)
_FAULTS_TOLD = 20
"""So many different texts of a world are logged and kept: some name a task or a process, and no two are the same."""


@dataclass
class CollectionStats:
    """Figures of one `play_rollouts`, filled while it runs. All times are wall-clock seconds."""

    began: float = field(default_factory=time.time)
    """Seconds since the epoch, by the clock of the machine that plays."""
    wall_s: float = 0.0
    engine_s: float = 0.0
    """In the engine."""
    waiting_s: float = 0.0
    """Blocked on the world."""
    world_s: float = 0.0
    """In the world, summed over its threads."""
    generated_tokens: int = 0
    """All sampled ones: those of void rollouts too, and the stops that a conversation does not keep."""
    world_retries: int = 0
    """Rollouts that were played again because of a world fault."""
    world_faults: Counter[str] = field(default_factory=Counter)
    """The world's words when it broke, of attempts that were played again too."""
    end_reasons: Counter[str] = field(default_factory=Counter)
    clocks: dict[str, list[float]] = field(default_factory=dict)
    """When each rollout (by name) was opened and its turns were answered, in seconds since the epoch."""
    deliveries: list[dict[str, Any]] = field(default_factory=list)
    """Proofs of the policy's delivery to servers, and what could not be told."""

    @property
    def tokens_per_s(self) -> float:
        seconds = self.wall_s or self.engine_s + self.waiting_s
        return self.generated_tokens / seconds if seconds else 0.0

    def count_fault(self, rollout: str, said: str) -> None:
        """Count a world fault, and log what was `said` if that is new."""
        if said not in self.world_faults and len(self.world_faults) < _FAULTS_TOLD:
            _log.warning("%s: a world fault: %s", rollout, said)
        self.world_faults[said] += 1

    def timings(self) -> Timings:
        """The figures as timings.json holds them."""
        figures: dict[str, Any] = {**vars(self), "end_reasons": dict(sorted(self.end_reasons.items()))}
        figures["world_faults"] = dict(self.world_faults.most_common(_FAULTS_TOLD))
        del figures["began"]
        figures["clocks"] = {name: [round(at, 3) for at in clock] for name, clock in sorted(self.clocks.items())}
        if not self.deliveries:
            del figures["deliveries"]
        return Timings(tokens_per_s=self.tokens_per_s, rollouts=self.end_reasons.total(), **figures)


def total(parts: Sequence[CollectionStats]) -> CollectionStats:
    """The sum of parts that were played one after another, or at once: then wall time is shorter than its sum."""
    span = max(stats.began + stats.wall_s for stats in parts) - min(stats.began for stats in parts)
    return CollectionStats(
        began=min(stats.began for stats in parts),
        wall_s=max(span, *(stats.wall_s for stats in parts)),
        engine_s=sum(stats.engine_s for stats in parts),
        waiting_s=sum(stats.waiting_s for stats in parts),
        world_s=sum(stats.world_s for stats in parts),
        generated_tokens=sum(stats.generated_tokens for stats in parts),
        world_retries=sum(stats.world_retries for stats in parts),
        clocks={name: clock for stats in parts for name, clock in stats.clocks.items()},
        world_faults=sum((stats.world_faults for stats in parts), Counter()),
        end_reasons=sum((stats.end_reasons for stats in parts), Counter()),
        deliveries=[delivery for stats in parts for delivery in stats.deliveries],
    )
