"""The section of params.yaml for BFCL's multi-turn tasks (package bfcl-eval 2026.3.23)."""

from typing import ClassVar

from pydantic import Field

from tasks.core.config.world_settings import WorldMetric, WorldSettings

MOST_USER_TURNS = 8


class BfclConfig(WorldSettings):
    """200 scenarios of four tasks: base, missing function, missing parameter, long context. TGC over all is BFCL's
    multi-turn accuracy.

    The package has no splits, all of it is a test: splits are ours, and a score after training is none for its
    leaderboard. Of each 50 scenarios about file systems, vehicles and trading, `world.seed` draws 25 for train, 5 for
    dev and 20 for test_normal; test_challenge is the 50 about travel, so that no scenario is in two splits.
    Difficulty: calls of the ground truth, 1: up to 4, 2: 5 or 6, 3: 7 and more.
    System prompts have 20 to 51 thousand characters.
    """

    own_metric: ClassVar[WorldMetric] = WorldMetric("accuracy", "success", 100)

    steps_per_turn: int = Field(20, ge=1, le=20)
    """Steps of calls in a user's turn. One more ends the episode. The package's limit is 20."""

    @property
    def most_turns(self) -> int:
        """Turns of text after which an episode is over in any case."""
        return MOST_USER_TURNS * (self.steps_per_turn + 1)
