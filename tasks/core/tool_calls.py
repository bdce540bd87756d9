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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tasks.core.confinement.inside.frames import MalformedMessage, decode_hostile
from tasks.core.interfaces.world import Message
from tasks.core.seeding import derive_seed

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


CallForm = Literal["json", "hermes"]

_JSON_TOOLS = """# Tools

You call a tool by a block of JSON:

```json
{{"name": "<tool>", "arguments": {{<arguments>}}}}
```

The tools, as JSON schemas:

{tools}"""
_HERMES_TOOLS = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""
"""Word for word what the chat templates of Qwen 2.5 and 3 and of Hermes write for `tools`."""


@dataclass(frozen=True)
class Result:
    """A tool's answer to a call."""

    content: str
    error: bool


def tools_text(schemas: Sequence[Mapping[str, Any]], form: CallForm) -> str:
    """Return the part of a system prompt that tells of tools, whose OpenAI schemas are given."""
    tools = "\n".join(json.dumps(schema, ensure_ascii=False) for schema in schemas)
    return (_JSON_TOOLS if form == "json" else _HERMES_TOOLS).format(tools=tools)


def call_text(calls: Sequence[tuple[str, Mapping[str, Any]]], form: CallForm) -> str:
    """Return a turn with these calls."""
    written = [json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False) for name, arguments in calls]
    if form == "hermes":
        return "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in written)
    return f"```json\n{written[0] if len(written) == 1 else '[' + ', '.join(written) + ']'}\n```"


def answer_text(calls: Sequence[Call], results: Sequence[Result], form: CallForm) -> str:
    """Return what the agent is shown of the results of a turn's calls."""
    if form == "hermes":
        return "\n".join(f"<tool_response>\n{result.content}\n</tool_response>" for result in results)
    if len(results) == 1:
        return results[0].content
    return "\n".join(f"{call.name}: {result.content}" for call, result in zip(calls, results, strict=True))


def error_text(error: str, form: CallForm) -> str:
    """Return what the agent is shown where no call could be read."""
    text = f"Error: {error}"
    return f"<tool_response>\n{text}\n</tool_response>" if form == "hermes" else text


_THINK = re.compile(r"</?think>")


def answer_message(text: str, thought: str, tools: Sequence[Any], seed: int) -> dict[str, Any]:
    """Return the assistant's message that a turn becomes where `tools` are offered. Raises MalformedCall.

    Ids of calls follow from `seed`; they are nine letters or digits, which Mistral's templates ask for.
    """
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls := read_calls(text) if tools else []:
        message["content"] = prose(text) or None
        message["tool_calls"] = [
            {
                "id": f"{derive_seed(seed, index):016x}"[-9:],
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
            }
            for index, call in enumerate(calls)
        ]
    if shown := _THINK.sub("", thought).strip():
        message["reasoning_content"] = shown
    return message


def readable_answer(text: str, thought: str, tools: Sequence[Any], seed: int) -> tuple[dict[str, Any], bool]:
    """Return the message, and whether its calls could be read; if not, it is text alone, as vLLM's server has it."""
    try:
        return answer_message(text, thought, tools, seed), True
    except MalformedCall:
        return answer_message(text, thought, (), seed), False


def checked(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message with text as its content and objects as the arguments of its calls.

    Raises ValueError for arguments that are no JSON object.
    """
    clean = {name: value for name, value in message.items() if value is not None}
    clean["content"] = clean.get("content", "")
    if calls := clean.get("tool_calls"):
        clean["tool_calls"] = [{**call, "function": _with_object(call["function"])} for call in calls]
    return clean


def _with_object(function: Mapping[str, Any]) -> dict[str, Any]:
    arguments = function["arguments"]
    arguments = json.loads(arguments or "{}") if isinstance(arguments, str) else arguments
    if not isinstance(arguments, dict):
        raise ValueError("arguments: no JSON object")
    return {"name": function["name"], "arguments": arguments}


def plain_messages(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return a conversation with tools in messages of text alone, in the form of Hermes.

    For templates that know no tools, and for models behind an API.
    """
    plain: list[Message] = []
    for message in messages:
        role, text = message["role"], message["content"]
        if role == "tool":
            text = f"<tool_response>\n{text}\n</tool_response>"
            if plain and plain[-1]["role"] == "user" and plain[-1]["content"].endswith("</tool_response>"):
                text = f"{plain.pop()['content']}\n{text}"
        calls = [call["function"] for call in message.get("tool_calls", ())]
        if calls:
            written = call_text([(call["name"], call["arguments"]) for call in calls], "hermes")
            text = f"{text}\n{written}".lstrip()
        plain.append({"role": "user" if role == "tool" else role, "content": text})
    if not tools:
        return plain
    told = tools_text(tools, "hermes")
    if plain and plain[0]["role"] == "system":
        return [{"role": "system", "content": f"{plain[0]['content']}\n\n{told}"}, *plain[1:]]
    return [{"role": "system", "content": told}, *plain]
