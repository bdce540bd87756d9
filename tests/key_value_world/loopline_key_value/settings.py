"""The section `world.key_value` of params.yaml."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from tasks.core.config.splits import Split, TaskCount, TaskCounts
from tasks.core.config.world_settings import MeanEpisode, WorldSettings


class KeyValueCounts(TaskCounts):
    """Tasks per split."""

    train: TaskCount = 36
    dev: TaskCount = 18
    test_normal: TaskCount = 36
    test_challenge: TaskCount = 36


class KeyValueConfig(WorldSettings):
    """A key-value store whose entries are to be brought to a goal.

    Difficulty: entries that are to change, 1 to 3. Scenario: three tasks on the same entries. train, dev and
    test_normal draw keys from the same colours; test_challenge has animals, which no other split has.
    """

    mean_episode: ClassVar = MeanEpisode(60, 3, 8, 12, 0.0001, "assumed")

    entries: int = Field(4, ge=3, le=8)
    """Entries of a store."""
    max_turns: int = Field(12, ge=4)
    """Turns after which an episode ends by itself."""
    counts: KeyValueCounts = KeyValueCounts()
    """Tasks per split."""

    @property
    def most_turns(self) -> int:
        """As `max_turns`."""
        return self.max_turns

    @property
    def task_counts(self) -> Mapping[Split, int]:
        """As `counts`."""
        return self.counts.by_split
