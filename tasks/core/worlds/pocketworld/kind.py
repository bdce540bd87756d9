"""The face of pocketworld: call the APIs of seven small apps."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from tasks.core.config.kinds import Late
from tasks.core.config.splits import Split
from tasks.core.config.world_settings import MeanEpisode, WorldSettings
from tasks.core.interfaces.world_kind import WorldKind

COUNTS: Mapping[Split, int] = {"train": 105, "dev": 60, "test_normal": 168, "test_challenge": 417}
"""Tasks of each split at scale 1: the paper's scenarios, three tasks each."""


class PocketworldConfig(WorldSettings):
    """Size and hardness of pocketworld."""

    mean_episode: ClassVar = MeanEpisode(29, 2.41, 19.6, 15.7, 0.0085, "tests/benchmarks/results/rollouts.json")

    scale: int = Field(1, ge=1, le=20)
    """Scenarios of every split and difficulty, times this; 1: the paper's numbers (35, 20, 56 and 139)."""
    chain: int = Field(1, ge=1, le=3)
    """Requests in one task, each over apps of its own. A policy that meets one of them with probability p succeeds with
    about p to this power: rarer success of the base policy, longer episodes, more to learn."""
    prompt: Literal["short", "full"] = "short"
    """Opening of an episode. short: one sentence, for policies that learnt the world from demonstrations; full:
    the rules, a worked example and the docs of the task's apps, for a model that never saw it."""
    chained_share: float = Field(1.0, ge=0, le=1)
    """Share of each split's scenarios whose tasks are chained. The others have one request."""

    @property
    def task_counts(self) -> Mapping[Split, int]:
        """`COUNTS` times `scale`."""
        return {split: self.scale * count for split, count in COUNTS.items()}


WORLD = WorldKind(
    settings=PocketworldConfig,
    write=Late("tasks.core.worlds.pocketworld.authoring:write_pocketworld"),
    open=Late("tasks.core.worlds.pocketworld.world:open_pocketworld"),
    demonstrations=Late("tasks.core.worlds.pocketworld.demonstrations:demonstrations"),
    recipe=Late("tasks.core.worlds.pocketworld.demonstrations:RECIPE"),
)
