"""The figure by which a world's own papers or leaderboard judge a policy, shown beside TGC and SGC under its name."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class WorldMetric:
    """A mean over episodes. A world declares it as `own_metric` of its section; one without has unit tests alone."""

    name: str
    of: Literal["success", "return", "turn_rewards"]
    """The column of rollouts that holds it; of one with a value per turn, the sum."""
    scale: float = 1.0
    """The value of 1 in that column in the world's own unit."""
