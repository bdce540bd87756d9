"""The section of params.yaml for BFCL's multi-turn tasks (package bfcl-eval 2026.3.23)."""

from collections.abc import Mapping
from typing import ClassVar

from tasks.core.config.splits import Split
from tasks.core.config.world_settings import MeanEpisode, WorldMetric, WorldSettings

MOST_USER_TURNS = 8
STEPS_PER_TURN = 20
"""Steps of calls in a user's turn, by the package. One more ends the episode."""
COUNTS: Mapping[Split, int] = {"train": 300, "dev": 60, "test_normal": 240, "test_challenge": 200}


class BfclConfig(WorldSettings):
    """200 scenarios of four tasks: base, missing function, missing parameter, long context. TGC over all is BFCL's
    multi-turn accuracy.

    The package has no splits, all of it is a test: splits are ours, and a score after training is none for its
    leaderboard. Of each 50 scenarios about file systems, vehicles and trading, `world.seed` draws 25 for train, 5 for
    dev and 20 for test_normal; test_challenge is the 50 about travel, so that no scenario is in two splits.
    Difficulty: calls of the ground truth, 1: up to 4, 2: 5 or 6, 3: 7 and more.
    System prompts have 20 to 51 thousand characters.
    """

    mean_episode: ClassVar = MeanEpisode(
        9000, 10, 60, 120, 0.01, "assumed; prompts: the package's, 20 to 51 thousand characters"
    )
    own_metric: ClassVar[WorldMetric] = WorldMetric("accuracy", "success", 100)
    constants: ClassVar[Mapping[str, str]] = {"steps_per_turn": "20"}

    @property
    def most_turns(self) -> int:
        """Turns of text after which an episode is over in any case."""
        return MOST_USER_TURNS * (STEPS_PER_TURN + 1)

    @property
    def task_counts(self) -> Mapping[Split, int]:
        """The numbers that the docstring above counts."""
        return COUNTS
