"""The opening that an agent is shown."""

from collections.abc import Mapping
from typing import Any, Literal

from tasks.core.interfaces.world import Message
from tasks.core.tool_calls.texts import CallForm, tools_text

Prompt = Literal["official", "ticket"]

BEGIN = "Solve the ticket."
SHORT_SYSTEM = "You solve tickets of a phone company by calling its tools, one at a time, and call done at the end."
OVER = "The ticket is closed."


def opening(task: Mapping[str, Any], prompt: Prompt, form: CallForm) -> list[Message]:
    """Return the first messages of an episode.

    official: the package's own system prompt (instructions, policy, manual and ticket) and the tools' schemas. ticket:
    one sentence and the ticket, for a policy that knows the tools.
    """
    if prompt == "ticket":
        return [{"role": "system", "content": SHORT_SYSTEM}, {"role": "user", "content": task["ticket"]}]
    return [
        {"role": "system", "content": f"{task['system']}\n\n{tools_text(task['tools'], form)}"},
        {"role": "user", "content": BEGIN},
    ]
