"""The face of Sokoban: push boxes onto targets."""

from collections.abc import Mapping
from typing import ClassVar

from tasks.core.config.kinds import Late
from tasks.core.config.world_settings import MeanEpisode
from tasks.core.interfaces.world_kind import WorldKind
from tasks.core.text_games.settings import TurnRules


class SokobanConfig(TurnRules):
    """Sokoban: push every box onto a target. Boxes cannot be pulled, so a wrong push may be the end.

    A task is a room that can be solved in at most `max_actions` moves. Reward: -0.1 a move, +1 a box that comes onto a
    target, -1 one that leaves it, +10 when all are there. No room comes twice, turned or mirrored ones included.
    train, dev and test_normal: 6x6 with one box; a scenario is one room in three orientations; difficulty by the
    shortest solution, 1: up to 4 moves, 2: 5 to 7, 3: 8 and more. test_challenge: a scenario is three variants, and the
    difficulty says which: 1 rooms of 6x6 in new symbols (W . G C B A @), 2 with new names of the actions, 3 rooms of
    8x8 with two boxes.
    """

    mean_episode: ClassVar = MeanEpisode(300, 4, 40, 80, 0.0001, "assumed")
    constants: ClassVar[Mapping[str, str]] = {**TurnRules.constants, "min_moves": "2"}


WORLD = WorldKind(
    settings=SokobanConfig,
    write=Late("tasks.core.worlds.sokoban.world:write_sokoban"),
    open=Late("tasks.core.worlds.sokoban.world:open_sokoban"),
    demonstrations=Late("tasks.core.worlds.sokoban.teacher:RECIPE.demonstrations"),
    recipe=Late("tasks.core.worlds.sokoban.teacher:RECIPE"),
)
