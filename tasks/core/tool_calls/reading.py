"""Tool calls in an agent's text, in the forms in which models write them.

    a fenced block, or the whole text   {"name": ..., "arguments": {...}}, or a list of such objects
    Qwen, Hermes                        <tool_call>{"name": ..., "arguments": {...}}</tool_call>, once or more
    Llama                               {"name": ..., "parameters": {...}}
    Mistral                             [TOOL_CALLS][{"name": ..., "arguments": {...}}]
    gpt-oss                             commentary to=functions.NAME ... {...}

Text comes without special tokens. Everything in it is hostile. Pure.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tasks.core.confinement.inside.hostile_json import MalformedMessage, decode_hostile

MOST_CHARS = 100_000
"""Longest turn that is read."""
_TAG, _TAG_END = "<tool_call>", "</tool_call>"
_MISTRAL = "[TOOL_CALLS]"
_HARMONY = re.compile(r"\bto=functions\.(\w+)")
_FENCE = "```"
_LANGUAGE = re.compile(r"\s*(?:json|tool_call|tool_code)?\s*(?=[{\[])")


class MalformedCall(Exception):  # noqa: N818
    """A call that cannot be read. Its text is for the agent."""


@dataclass(frozen=True)
class Call:
    """One tool call."""

    id: str
    name: str
    arguments: dict[str, Any]

    @property
    def message(self) -> dict[str, Any]:
        """The call as a chat API has it."""
        return {"id": self.id, "name": self.name, "arguments": self.arguments}


def read_calls(text: str) -> list[Call]:
    """Return the calls of a turn, in order; none if the turn has no call. Raises MalformedCall."""
    if len(text) > MOST_CHARS:
        raise MalformedCall(f"a message of {len(text)} characters; {MOST_CHARS} are read")
    return calls_of(_values(text))


def calls_of(values: Iterable[Any]) -> list[Call]:
    """Return the calls that JSON objects with name and arguments stand for. Raises MalformedCall."""
    written = [_named(value) for value in values]
    return [Call(f"call_{number}", name, arguments) for number, (name, arguments) in enumerate(written)]


def prose(text: str) -> str:
    """Return what a turn with calls says before the first of them."""
    starts = [place for mark in (_TAG, _MISTRAL, _FENCE) if (place := text.find(mark)) >= 0]
    if match := _HARMONY.search(text):
        starts.append(match.start())
    return text[: min(starts, default=0)].strip()


def _values(text: str) -> list[Any]:
    """Return the JSON values that stand for calls; lists are taken apart."""
    if _TAG in text:
        return _decoded(part.partition(_TAG_END)[0] for part in text.split(_TAG)[1:])
    if _MISTRAL in text:
        return _decoded([text.partition(_MISTRAL)[2]])
    if match := _HARMONY.search(text):
        return [{"name": match[1], "arguments": _decoded([text[text.find("{", match.end()) :]])[0]}]
    if _FENCE in text:
        blocks = [_LANGUAGE.sub("", block, count=1) for block in text.split(_FENCE)[1::2]]
        return _decoded(block for block in blocks if block.lstrip().startswith(("{", "[")))
    return _decoded([text]) if text.lstrip().startswith(("{", "[")) else []


def _decoded(parts: Any) -> list[Any]:
    values: list[Any] = []
    for part in parts:
        value = json_of(part)
        values += value if isinstance(value, list) else [value]
    return values


def json_of(text: str) -> Any:
    """Return the value of hostile JSON. Raises MalformedCall."""
    try:
        return decode_hostile(f'{{"value": {text}}}'.encode("utf-8", "replace"))["value"]
    except MalformedMessage as error:
        raise MalformedCall(_plain(text, error)) from None


def _plain(text: str, error: MalformedMessage) -> str:
    """Return the decoder's message for the text itself, as the package's own runner has it."""
    try:
        json.loads(text)
    except (ValueError, RecursionError) as plain:
        return str(plain)
    return str(error)


def _named(value: Any) -> tuple[str, dict[str, Any]]:
    """Return name and arguments. A name and arguments of the wrong type are refused, as the package's ToolCall does."""
    if not isinstance(value, dict):
        raise MalformedCall("a call must be an object with name and arguments")
    name = value.get("name")
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):  # the OpenAI API has them as text
        arguments = json_of(arguments)
    if not isinstance(name, str):
        raise MalformedCall("name: Input should be a valid string")
    if not isinstance(arguments, dict):
        raise MalformedCall("arguments: Input should be a valid dictionary")
    return name, arguments
