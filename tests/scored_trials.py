"""Two runs of a scored model, for what worlds write of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tasks.core.config.world_settings import WorldSettings
from tasks.core.interfaces.world_kind import ScoredEpisode, ScoredTrials


def trials_of(
    settings: WorldSettings, world: Path, split: str, episodes: Sequence[ScoredEpisode], folder: Path
) -> ScoredTrials[Any]:
    """Return the two runs that `episodes` are of."""
    return ScoredTrials(
        settings=settings,
        code_blocks="first",
        world=world,
        split=split,
        episodes=episodes,
        trials=2,
        model="a model",
        temperature=0.0,
        git_commit="",
        cost=0.0,
        world_cost=0.0,
        folder=folder,
    )
