"""The contract between the agent loop and an episode that is a program of its own, which asks for the policy's turns.

Such an episode is also an `Episode` (tasks/core/interfaces/world.py) whose turns are what its program is answered.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from tasks.core.interfaces.world import Evaluation

ChatMessage = Mapping[str, Any]
"""A checked message of a chat API: `role`, `content` (always text), and `tool_calls` whose arguments are objects."""


@dataclass(frozen=True)
class Ask:
    """A program's request for a turn."""

    messages: Sequence[ChatMessage]
    tools: Sequence[Mapping[str, Any]] = ()
    """Schemas, as the OpenAI API has them."""
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None


@dataclass(frozen=True)
class Said:
    """The policy's turn, as the program is told of it."""

    message: Mapping[str, Any]
    """As the OpenAI API has it: text, thought and tool calls."""
    finish: str
    """As the API has it: stop, length or tool_calls."""
    prompt_tokens: int = 0
    sampled_tokens: int = 0


@dataclass(frozen=True)
class Refusal:
    """The reason why a request has no answer, as the program is told of it."""

    message: str
    field: str | None = None
    """The field of the request that is to blame."""
    code: str | None = None


@runtime_checkable
class Asking(Protocol):
    """A live episode whose program may ask for several turns at once; the agent loop takes one after the other."""

    def next_ask(self) -> Ask | None:
        """Wait for the program's next request; None: it has ended. Raises WorldFault where it broke."""
        ...

    def answer(self, said: Said | Refusal) -> None:
        """Answer the request that `next_ask` gave last, or refuse it."""
        ...

    def evaluate(self) -> Evaluation:
        """Return the program's verdict; before its end, that of a task which is not solved."""
        ...
