"""The interface between a game and its conversation. A game knows nothing of turns, answers or penalties."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Briefing:
    """Rules that a player sees once, before the first turn."""

    rules: str
    symbols: tuple[tuple[str, str], ...] = ()
    """Symbols of the state and their meanings."""
    actions: tuple[str, ...] = ()
    """Names of the actions; empty if they depend on the state, which then names them."""


class Game(Protocol):
    """A game in play."""

    over: bool
    """Whether the game has ended."""
    solved: bool

    @property
    def state(self) -> str:
        """The player's view."""
        ...

    def understood(self, action: str) -> str | None:
        """Return an action in the game's own form; None if the (hostile) text, of any length, is no action now."""
        ...

    def play(self, action: str) -> float:
        """Play an action that `understood` returned. Returns its reward."""
        ...


@dataclass(frozen=True)
class GameRules:
    """The part that all games of a world share."""

    name: str
    """The world's name; actions are logged as `<name>.<action>`."""
    requirement: str
    """The goal, worded as the only test of an episode."""
    lowest_reward: float
    """Lowest possible sum of an episode's rewards, without the penalties of turns."""
    highest_reward: float
    of_chance: bool = False
    """Whether the effect of an action depends on chance."""
