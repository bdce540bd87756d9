"""The texts of tools: their schemas in a prompt, calls as a model writes them, and the answers that it is shown."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tasks.core.tool_calls.reading import Call

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
