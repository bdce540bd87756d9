"""Simulated users: by a fixed script, or a model behind an API."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Protocol

from tasks.core.chat_servers.answers import ChatTurn, PromptTooLong
from tasks.core.chat_servers.client import ChatMessage, PayingClient
from tasks.core.chat_servers.paid_answers import PaidAnswers
from tasks.core.chat_servers.settings import ChatApiConfig
from tasks.core.interfaces.engine import GenerationRequest, SamplingSettings
from tasks.core.processes.event_loop import EventLoopThread
from tasks.core.records.timings import ApiUsage
from tasks.core.seeding import derive_seed
from tasks.core.tool_calls import Call, MalformedCall, calls_of, json_of, read_calls
from tasks.core.worlds.tau2.kind import Tau2Config, UserConfig

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
        latest = takewhile(lambda one: one["role"] == "tool" and one["requestor"] == "user", reversed(messages))
        if answers := [one["content"] for one in latest]:
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


SAMPLING = SamplingSettings(temperature=0.0, max_tokens=1024, stop_ids=())
"""The package's temperature. It names no longest message."""


class UserServer:
    """The server that plays the users of all episodes. Thread-safe."""

    def __init__(self, config: UserConfig) -> None:
        """Open the client. Raises ChatApiError when the environment holds no key."""
        settings = ChatApiConfig(request=config.request, traffic=config.traffic)
        self._client = PayingClient(settings, config.named, "world.tau2.user")
        self._loop = EventLoopThread("tau2 users")

    def ask(self, request: GenerationRequest, tools: Sequence[Mapping[str, Any]]) -> ChatTurn:
        """Return the answer, from the file where it is paid for already. Raises PromptTooLong and ChatApiError."""
        return self._loop.run(self._answer(request, tools))

    def take_usage(self) -> ApiUsage:
        """Return what was used and paid since the last call."""
        return self._client.take_usage()

    def close(self) -> None:
        """End the connections. Idempotent."""
        if not self._loop.is_closed:
            self._loop.run(self._client.close())
            self._loop.close()

    async def _answer(self, request: GenerationRequest, tools: Sequence[Mapping[str, Any]]) -> ChatTurn:
        paid, earlier = await self._client.answer(request, self._client.call(request, tools))
        self._client.spending.add(paid, earlier)
        return paid.answer


class ModelUser:
    """The user of one episode; see `SimulatedUser`."""

    def __init__(self, server: UserServer, part: Mapping[str, Any], task_id: str, seed: int) -> None:
        """Take the user's part of a task, as the pool describes it, and the seed of the episode."""
        self._server, self._task_id, self._seed = server, task_id, seed
        self._system, self._tools = part["system"], part["tools"]

    def reply(self, messages: Sequence[dict[str, Any]]) -> Said | None:
        """Ask the server for the next message. Raises ChatApiError."""
        said: list[ChatMessage] = [{"role": "system", "content": self._system}, *heard_by_user(messages)]
        seed = derive_seed(self._seed, "tau2 user", len(messages))
        name = f"user of {self._task_id}"
        request = GenerationRequest(name, (), SAMPLING, seed, self._task_id, said)  # type: ignore[arg-type] # tools too
        try:
            return understood(self._server.ask(request, self._tools), has_tools=bool(self._tools))
        except (MalformedCall, PromptTooLong):
            return None


def heard_by_user(messages: Sequence[dict[str, Any]]) -> Iterator[ChatMessage]:
    """Yield what the user has said and heard, with its own part as the assistant's, as the package flips roles."""
    for message in messages:
        if message["role"] == "user":
            said = {"role": "assistant", "content": message.get("content", "")}
            calls = [
                {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": arguments}}
                for call in message.get("tool_calls", ())
                for arguments in [json.dumps(call["arguments"])]
            ]
            yield said | ({"tool_calls": calls} if calls else {})
        elif message["role"] == "assistant" and "tool_calls" not in message:
            yield {"role": "user", "content": message["content"]}
        elif message["role"] == "tool" and message["requestor"] == "user":
            yield {"role": "tool", "tool_call_id": message["id"], "content": message["content"]}


def forget(settings: Tau2Config, task_ids: Iterable[str]) -> None:
    """Discard the user's answers on these tasks, because their result is written now."""
    if settings.mode == "user" and settings.user.by == "model":
        with closing(PaidAnswers()) as paid:
            paid.drop(settings.user.named(task) for task in task_ids)


def understood(turn: ChatTurn, *, has_tools: bool) -> Said | None:
    """Return what the user said; None: nothing. Raises MalformedCall.

    Everything in it is hostile. Calls are the API's own, or in the text, from a server that does not read them there.
    """
    text = _clean(turn.text)
    if turn.calls:
        calls = calls_of({"name": _clean(call.name), "arguments": call.arguments or "{}"} for call in turn.calls)
    else:
        calls = read_calls(text) if has_tools else []
    return Said(text, tuple(calls)) if calls or text.strip() else None


def _clean(text: str) -> str:
    """Return a text without lone surrogates, which no file takes."""
    return text.encode("utf-8", "replace").decode()
