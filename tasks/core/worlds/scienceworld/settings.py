"""The section of params.yaml for ScienceWorld (arXiv 2203.07540)."""

from typing import ClassVar

from pydantic import Field

from tasks.core.config.splits import TaskCount, TaskCounts
from tasks.core.config.world_settings import MeanEpisode, WorldMetric
from tasks.core.text_games.settings import TextTurns


class ScienceCounts(TaskCounts):
    """Tasks per split, spread over its types; there are at most 2,493, 1,242, 1,257 and 546."""

    train: TaskCount = 60
    dev: TaskCount = 30
    test_normal: TaskCount = 60
    test_challenge: TaskCount = 30


class ScienceWorldConfig(TextTurns):
    """ScienceWorld: experiments of thirty types in a house of ten rooms, one action of text in a turn.

    A task is an official variation of a type. train and dev: official train and dev variations of twenty types;
    test_normal: official test variations of the same types; test_challenge: official test variations of ten other
    types, one for each topic, held out. Scenario: three consecutive variations of a type within a split (ours), none of
    which the official solution fails.
    Difficulty: actions of the official solution, 1: up to 15, 2: 16 to 50, 3: more. Solved: the official score is 100;
    the graded score is the official one over 100, nothing where it is negative. `reset task` is no action here: an
    agent could earn the same progress twice.
    """

    mean_episode: ClassVar = MeanEpisode(600, 40, 40, 120, 0.02, "assumed")
    own_metric: ClassVar[WorldMetric] = WorldMetric("score", "return", 100)

    max_moves: int | None = Field(100, ge=1)
    """Official limit of moves, at which an episode ends by itself. They are ticks of the simulator's clock, 11 for
    `wait`, none for looking around; null: none. Of the official solutions one in five is longer."""
    max_turns: int = Field(120, ge=1)
    """Turns after which an episode ends by itself too. What is no action takes no move. `collection.limits.max_turns`
    must not be below it."""
    counts: ScienceCounts = ScienceCounts()
    """Tasks per split."""
