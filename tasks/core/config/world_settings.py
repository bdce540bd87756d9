"""The base of the worlds' own sections of params.yaml."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from tasks.core.config.section import Section
from tasks.core.config.splits import TaskCounts


@dataclass(frozen=True)
class WorldMetric:
    """A mean over episodes by which a world's own papers or leaderboard judge a policy, beside TGC and SGC."""

    name: str
    of: Literal["success", "return", "turn_rewards"]
    """The column of rollouts that holds it; of one with a value per turn, the sum."""
    scale: float = 1.0
    """The value of 1 in that column in the world's own unit."""


class WorldSettings(Section):
    """The section of one world."""

    own_metric: ClassVar[WorldMetric | None] = None
    """The world's own measure of a policy; None where that is its unit tests."""

    @property
    def most_turns(self) -> int:
        """Turns after which the world has ended an episode itself; 0: no limit."""
        return 0

    @property
    def task_counts(self) -> TaskCounts | None:
        """Tasks per split; None where they are the benchmark's own numbers."""
        return None
