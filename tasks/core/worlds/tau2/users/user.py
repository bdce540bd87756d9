"""The face of a simulated user."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tasks.core.tool_calls.reading import Call

STOP, TRANSFER = "###STOP###", "###TRANSFER###"
STOP_WORDS = (STOP, TRANSFER, "###OUT-OF-SCOPE###")
"""The package's own (`tau2.user.base`)."""


@dataclass(frozen=True)
class Said:
    """A message of the user: words, or calls of its tools. Beside calls, words go to nobody."""

    text: str
    calls: tuple[Call, ...] = ()


class SimulatedUser(Protocol):
    """The user of one episode."""

    def reply(self, messages: Sequence[dict[str, Any]]) -> Said | None:
        """Return the next message, given the episode's messages so far; None: nothing that can be understood."""
        ...
