"""The face of the bandit: pull one of two arms."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from tasks.core.config.kinds import Late
from tasks.core.config.world_settings import MeanEpisode
from tasks.core.interfaces.world_kind import WorldKind
from tasks.core.text_games.settings import TurnRules


class BanditConfig(TurnRules):
    """Two arms whose names hint at what they pay: one pays a little for sure, the other seldom and much.

    A task is a pair of names and their order; luck is drawn from the rollout's seed. Solved: the arm that pays more on
    average was pulled. The three tasks of a scenario have the same names. Splits and difficulties: train and dev,
    difficulty 1, have Phoenix as the safe arm and Dragon as the risky one. test_normal, difficulty 2, reverses their
    meaning: a policy that learnt a name gets it wrong, so TGC there falls where training succeeds. It is no measure of
    progress, and the profile has promotion read test_challenge in its place, difficulty 3: Trader (safe) and Librarian
    (risky), names never trained on.
    """

    mean_episode: ClassVar = MeanEpisode(150, 1, 40, 20, 0.0001, "assumed")
    constants: ClassVar[Mapping[str, str]] = {
        **TurnRules.constants,
        "max_actions_per_turn": "1",
        "safe_reward": "0.15",
        "risky_reward": "1.0",
        "risky_probability": "0.25",
    }
    max_actions_per_turn: ClassVar[int] = 1

    max_turns: int = Field(1, ge=1)
    """Turns of an episode."""
    max_actions: int = Field(1, ge=1)
    """Actions of a whole episode."""


WORLD = WorldKind(
    settings=BanditConfig,
    write=Late("tasks.core.worlds.bandit.world:write_bandit"),
    open=Late("tasks.core.worlds.bandit.world:open_bandit"),
    demonstrations=Late("tasks.core.worlds.bandit.teacher:RECIPE.demonstrations"),
    recipe=Late("tasks.core.worlds.bandit.teacher:RECIPE"),
)
