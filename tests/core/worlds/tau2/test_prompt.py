"""The form `hermes` is what Qwen's own chat template writes for tools, calls and answers, byte for byte."""

from pathlib import Path

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from tasks.core.tool_calls import Call, Result, answer_text, call_text
from tasks.core.worlds.tau2.episode import BEGIN, opening

TEMPLATES = Path(__file__).parents[2] / "policies"
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "Zeigt „📶“.", "parameters": {"type": "object"}}}
    for name in ("check_sim_status", "done")
]
TASK = {"system": "<policy>\nBe kind.\n</policy>", "ticket": "No signal.", "tools": TOOLS}
ARGUMENTS = {"line_id": "L1002", "gb_amount": 2.0, "name": "José"}
ANSWERS = ("No SIM card.", "Error: no")


def rendered(template: str, messages: list[dict[str, object]], **variables: object) -> str:
    text, _ = render_jinja_template(
        [messages], chat_template=(TEMPLATES / template).read_text(), add_generation_prompt=True, **variables
    )
    return str(text[0])


@pytest.mark.parametrize("template", ["qwen2_5.jinja", "chat_templates/qwen3.jinja"])
@pytest.mark.parametrize("number", [1, 2])
def test_hermes_is_the_templates_own_tool_format(template: str, number: int) -> None:
    calls = [("refuel_data", ARGUMENTS)] * number
    results = [Result(text, error=False) for text in ANSWERS[:number]]
    ours = [
        *opening(TASK, "official", "hermes"),
        {"role": "assistant", "content": call_text(calls, "hermes")},
        {"role": "user", "content": answer_text([Call("", *call) for call in calls], results, "hermes")},
    ]
    theirs = [
        {"role": "system", "content": TASK["system"]},
        {"role": "user", "content": BEGIN},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": name, "arguments": arguments}} for name, arguments in calls],
        },
        *({"role": "tool", "content": result.content} for result in results),
    ]
    assert rendered(template, ours) == rendered(template, theirs, tools=TOOLS)  # type: ignore[arg-type]


def test_a_learned_policy_gets_the_ticket_alone() -> None:
    messages = opening(TASK, "ticket", "json")
    assert messages[-1] == {"role": "user", "content": "No signal."} and "policy" not in messages[0]["content"]
