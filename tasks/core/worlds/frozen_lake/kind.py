"""The face of FrozenLake: walk over slippery ice to the goal."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from tasks.core.config.kinds import Late
from tasks.core.config.world_settings import MeanEpisode
from tasks.core.interfaces.world_kind import WorldKind
from tasks.core.text_games.settings import TurnRules


class FrozenLakeConfig(TurnRules):
    """Gymnasium's FrozenLake: walk over ice to the goal, past holes. On slippery ice two steps in three go sideways.

    A task is a map; where one slips is drawn from the rollout's seed. Solved: the goal was reached, for a reward of 1.
    Scenario: one drawing of ice and holes with three starts and goals. Difficulty: length of the shortest way, 1: up to
    2 steps, 2: 3 or 4, 3: 5 and more. train, dev and test_normal: maps of `size`, none twice. test_challenge: maps of
    five cells along a side, in new symbols (A . # * @ !).
    """

    mean_episode: ClassVar = MeanEpisode(250, 4, 40, 60, 0.0001, "assumed")
    constants: ClassVar[Mapping[str, str]] = {
        **TurnRules.constants,
        "frozen": "0.8",
        "success_rate": "1/3",
        "challenge_size": "5",
    }

    size: int = Field(4, ge=2, le=16)
    """Cells along a side."""
    slippery: bool = True
    """Steps may slip sideways."""


WORLD = WorldKind(
    settings=FrozenLakeConfig,
    write=Late("tasks.core.worlds.frozen_lake.world:write_frozen_lake"),
    open=Late("tasks.core.worlds.frozen_lake.world:open_frozen_lake"),
    demonstrations=Late("tasks.core.worlds.frozen_lake.teacher:RECIPE.demonstrations"),
    recipe=Late("tasks.core.worlds.frozen_lake.teacher:RECIPE"),
)
