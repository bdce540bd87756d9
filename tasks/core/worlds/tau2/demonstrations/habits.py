"""Bad habits of an agent, as probabilities."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Way:
    """Probabilities of looking and of acting blindly; by the rest, of neither."""

    looks: float
    acts_blindly: float


_CAREFUL = Way(1, 0)
_WAYS = {
    "sim": Way(0.85, 0.05),
    "network": Way(0.9, 0.05),
    "line": Way(0.45, 0.1),
    "preference": Way(0.85, 0.1),
    "apn": Way(0.85, 0.05),
    "saver": Way(0.35, 0.55),
    "vpn": Way(0.4, 0.05),
    "usage": Way(0.8, 0.15),
    "calling": Way(0.35, 0.1),
    "permissions": Way(0.4, 0.05),
}


@dataclass(frozen=True)
class Habits:
    """Probabilities; all others than those of `ways` are of a mistake."""

    ways: Mapping[str, Way] = field(default_factory=dict)
    """By the name of a look; a look that is not named is always taken."""
    toggles_twice: float = 0.0
    """Per toggle."""
    forgets_second: float = 0.0
    """Per sign after a look's first: overlook it."""
    forgets_reboot: float = 0.0
    stops_early: float = 0.0
    """Per look: call done."""
    hands_over_early: float = 0.0
    """Per look: hand over and call done."""
    goes_on: float = 0.0
    """Go on where only a human can help, or where a SIM card was re-seated not look at it again."""
    forgets_to_pay: float = 0.0
    forgets_result: float = 0.0
    """Not look at the result at the end."""

    def way(self, look: str) -> Way:
        """Return how this agent goes about a look."""
        return self.ways.get(look, _CAREFUL)


PERFECT = Habits()
IMPERFECT = Habits(
    ways=_WAYS,
    toggles_twice=0.05,
    forgets_second=0.1,
    forgets_reboot=0.1,
    stops_early=0.01,
    hands_over_early=0.01,
    goes_on=0.65,
    forgets_to_pay=0.6,
    forgets_result=0.5,
)
"""Some of them are what the agent mostly does, so that they show at a low temperature too."""
