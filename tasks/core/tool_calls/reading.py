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
_MISTRAL_NAMED = re.compile(r"\[TOOL_CALLS\]\s*([\w.-]+)\[ARGS\]")
_PYTHON = "<|python_tag|>"
_TO = "to=functions."
_HARMONY = re.compile(r"\bto=functions\.(\w+)(?:\s+\w+)?\s*(?=\{)")
_FENCE = "```"
_LANGUAGE = re.compile(r"\s*(json|tool_call|tool_code)?\s*(?=[{\[])")
_CALL = re.compile(r"\s*(?:<\|python_tag\|>)?\s*\[?\s*\{.*\"name\"", re.DOTALL)
"""The beginning of a call without a mark; a message may begin with a bracket, too."""


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
    """Return the JSON values that stand for calls; lists are taken apart. A mark before no JSON marks nothing."""
    if _CALL.match(text):
        return _parts(text.lstrip().removeprefix(_PYTHON), ";")
    marks = {_TAG: _tagged, _MISTRAL: _mistral, _TO: _harmony, _FENCE: _fenced}
    found = sorted((mark for mark in marks if mark in text), key=text.find)
    return next(filter(None, (marks[mark](text) for mark in found)), [])


def _mistral(text: str) -> list[Any]:
    if named := list(_MISTRAL_NAMED.finditer(text)):
        return [{"name": match[1], "arguments": _json_at(text, match.end())[0]} for match in named]
    rest = text.partition(_MISTRAL)[2]
    return _parts(rest, _MISTRAL) if rest.lstrip().startswith(("[", "{")) else []


def _harmony(text: str) -> list[Any]:
    match = _HARMONY.search(text)
    return [{"name": match[1], "arguments": json_of(text[match.end() :])}] if match else []


def _tagged(text: str) -> list[Any]:
    values: list[Any] = []
    place = 0
    while (tag := text.find(_TAG, place)) >= 0:
        place = tag + len(_TAG)
        if text.find(_TAG_END, place) < 0 and not text[place:].lstrip().startswith(("{", "[")):
            continue  # the tag is only mentioned
        value, place = _json_at(text, place)
        _require_end(text, place, (_TAG_END, _TAG))
        values += _listed(value)
    return values


def _fenced(text: str) -> list[Any]:
    values: list[Any] = []
    place = 0
    while (fence := text.find(_FENCE, place)) >= 0:
        language = _LANGUAGE.match(text, fence + len(_FENCE))
        end = text.find(_FENCE, fence + len(_FENCE))
        place = len(text) if end < 0 else end + len(_FENCE)
        if language and (language[1] or _CALL.match(text[language.end() : place])):
            value, place = _json_at(text, language.end())
            _require_end(text, place, (_FENCE,))
            place = text.find(_FENCE, place) + len(_FENCE) if _FENCE in text[place:] else len(text)
            values += _listed(value)
    return values


def _parts(text: str, between: str) -> list[Any]:
    """Return the values of a text that has nothing but JSON values with `between` between them."""
    value, place = _json_at(text, 0)
    values = _listed(value)
    while text[place:].strip():
        _require_end(text, place, (between,))
        value, place = _json_at(text, text.index(between, place) + len(between))
        values += _listed(value)
    return values


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _require_end(text: str, place: int, ends: tuple[str, ...]) -> None:
    """Raise MalformedCall where a value is followed by something else than one of `ends`."""
    rest = text[place:].lstrip()
    if rest and not rest.startswith(ends):
        raise MalformedCall(f"Extra data: char {len(text) - len(rest)}")


def _json_at(text: str, place: int) -> tuple[Any, int]:
    """Return the JSON value that begins at `place`, and where it ends. Raises MalformedCall."""
    begin = len(text) - len(text[place:].lstrip())
    try:
        _, end = json.JSONDecoder().raw_decode(text, begin)
    except (ValueError, RecursionError) as error:
        raise MalformedCall(str(error)) from None
    return json_of(text[begin:end]), end


def json_of(text: str) -> Any:
    """Return the value of hostile JSON. Raises MalformedCall."""
    try:
        json.loads(text)  # one value and nothing behind it, which could close the object around it
        return decode_hostile(f'{{"value": {text}}}'.encode("utf-8", "replace"))["value"]
    except (ValueError, RecursionError, MalformedMessage) as error:
        raise MalformedCall(str(error)) from None


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
