"""Messages of a chat API: the answer that a turn becomes, and conversations with tools as text."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.core.interfaces.world import Message
from tasks.core.seeding import derive_seed
from tasks.core.tool_calls.reading import MalformedCall, prose, read_calls
from tasks.core.tool_calls.texts import call_text, tools_text

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
