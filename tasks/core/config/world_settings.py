"""The base of the worlds' own sections of params.yaml."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from tasks.core.config.section import Section
from tasks.core.config.splits import Split


@dataclass(frozen=True)
class WorldMetric:
    """A mean over episodes by which a world's own papers or leaderboard judge a policy, beside TGC and SGC."""

    name: str
    of: Literal["success", "return", "turn_rewards"]
    """The column of rollouts that holds it; of one with a value per turn, the sum."""
    scale: float = 1.0
    """The value of 1 in that column in the world's own unit."""


@dataclass(frozen=True)
class MeanEpisode:
    """The mean episode of a world, in the policy's tokens: what `loopline plan` reckons with."""

    prompt: float
    turns: float
    sampled_per_turn: float
    observed_per_turn: float
    turn_s: float
    """The world's own time per turn, on one core."""
    source: str
    """Where the figures were measured, or "assumed"."""

    @property
    def sampled(self) -> float:
        """Tokens that the policy samples."""
        return self.turns * self.sampled_per_turn

    @property
    def tokens(self) -> float:
        """All tokens."""
        return self.prompt + self.sampled + self.turns * self.observed_per_turn


class WorldSettings(Section):
    """The section of one world, and what others must know of the world without running it."""

    own_metric: ClassVar[WorldMetric | None] = None
    """The world's own measure of a policy; None where that is its unit tests."""
    scenario_sizes: ClassVar[Sequence[int]] = (3, 4)
    """Tasks that a scenario may have, which are variants of each other; (1,): a task is a scenario of its own."""
    mean_episode: ClassVar[MeanEpisode | None] = None
    """Episodes as `loopline plan` reckons with them; None: it cannot plan this world."""
    standing_date: ClassVar[datetime.date | None] = None
    """Day on which the world's clock stands; None: it has no clock, or that of the machine."""

    @property
    def most_turns(self) -> int:
        """Turns after which the world has ended an episode itself; 0: no limit."""
        return 0

    @property
    def only_scored(self) -> str:
        """Why policies are scored and not trained with these settings, after the world's name; empty: they train."""
        return ""

    @property
    def source_files(self) -> Path | None:
        """File or folder that a knob names and tasks are made from, which DVC watches; None: code alone makes them."""
        return None

    @property
    def task_counts(self) -> Mapping[Split, int] | None:
        """Tasks per split; None where nobody knows before they are written."""
        return None
