"""The contract between a game and the conversation around it. A game knows nothing of turns, answers or penalties."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Briefing:
    """Rules that a player is told once, before the first turn."""

    rules: str
    symbols: tuple[tuple[str, str], ...] = ()
    """Symbols of the state and what they mean."""
    actions: tuple[str, ...] = ()
    """Names of the actions; none where they depend on the state, which then names them."""


class Game(Protocol):
    """One game in play."""

    over: bool
    """Nothing can be played any more."""
    solved: bool

    @property
    def state(self) -> str:
        """The player's view."""
        ...

    def understood(self, action: str) -> str | None:
        """An action in the game's own words, or None for a text (hostile, of any length) that is none just now."""
        ...

    def play(self, action: str) -> float:
        """Play an action that was `understood`, and return its reward."""
        ...


@dataclass(frozen=True)
class GameRules:
    """Common part of all games of one world."""

    name: str
    """The world's; actions are logged as `<name>.<action>`."""
    requirement: str
    """The goal, as the one test of an episode."""
    lowest_reward: float
    """No sum of rewards of an episode is below; penalties of turns come on top."""
    highest_reward: float
    of_chance: bool = False
    """Whether luck decides what an action leads to."""
