"""A user that follows a script made from its task's scenario. For tests: no score with it means anything."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

from tasks.core.tool_calls.reading import Call, MalformedCall, json_of
from tasks.core.worlds.tau2.users.user import STOP, TRANSFER, Said

_ASKED = re.compile(r"`(\w+)\((.{0,500}?)\)`", re.DOTALL)
ALL_TOLD = "I have told you all that I know."


class ScriptedUser:
    """A user that tells all it knows at once, and does what it is told to.

    The agent asks for a call of the user's by `name({"argument": "value"})` between back quotes, and is told the
    answers. Asked anything else, the user knows nothing more; told anything, it ends the conversation.
    """

    def __init__(self, part: Mapping[str, Any]) -> None:
        """Take the user's part of a task, as the pool describes it."""
        scenario = part["scenario"]
        self._opening = "\n".join(text for text in (scenario["reason_for_call"], scenario["known_info"]) if text)
        self._tools = {schema["function"]["name"] for schema in part["tools"]}

    def reply(self, messages: Sequence[dict[str, Any]]) -> Said:
        """Return the next message; see `SimulatedUser`."""
        answers = [one["content"] for one in takewhile(_is_answer, reversed(messages))]
        if answers:
            return Said("\n".join(reversed(answers)))
        if len(messages) == 1:
            return Said(self._opening)
        heard = messages[-1]["content"]
        if calls := tuple(self._asked(heard)):
            return Said("", calls)
        if "transfer" in heard.lower():
            return Said(TRANSFER)
        return Said(ALL_TOLD if "?" in heard else STOP)

    def _asked(self, heard: str) -> Iterator[Call]:
        for number, (name, written) in enumerate(_ASKED.findall(heard)):
            try:
                arguments = json_of(written or "{}")
            except MalformedCall:
                continue
            if name in self._tools and isinstance(arguments, dict):
                yield Call(f"user_{number}", name, arguments)


def asking(name: str, arguments: str) -> str:
    """Return what an agent says to have the user call a tool; `arguments` is JSON."""
    return f"Please do this, and tell me what you see: `{name}({arguments})`"


def _is_answer(message: dict[str, Any]) -> bool:
    return bool(message["role"] == "tool" and message["requestor"] == "user")
