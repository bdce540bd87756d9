"""Calls in the forms of several models, and text that is no call."""

import json

import pytest

from tasks.core.tool_calls import MOST_CHARS, Call, CallForm, MalformedCall, Result, answer_text, call_text, read_calls

LOOK, REFUEL = ("check_sim_status", {}), ("refuel_data", {"line_id": "L1002", "gb_amount": 2.0, "x": None, "y": [{}]})
WRITTEN = [json.dumps({"name": name, "arguments": arguments}) for name, arguments in (LOOK, REFUEL)]


def pairs(text: str) -> list[tuple[str, dict[str, object]]]:
    return [(call.name, call.arguments) for call in read_calls(text)]


@pytest.mark.parametrize("form", ["json", "hermes"])
def test_what_is_written_is_read(form: CallForm) -> None:
    for calls in ([LOOK], [REFUEL], [LOOK, REFUEL]):
        assert pairs(call_text(calls, form)) == calls
        assert pairs(f"I will look first.\n{call_text(calls, form)}\nThen I act.") == calls


@pytest.mark.parametrize("text", ["a </tool_call> b", "a <tool_call> b", "a ``` b", "[TOOL_CALLS]", "; {"])
def test_marks_within_arguments_mark_nothing(text: str) -> None:
    said = [("a", {"text": text}), ("b", {})]
    for form in ("json", "hermes"):
        assert pairs(call_text(said, form)) == said
    written = [json.dumps({"name": name, "parameters": arguments}) for name, arguments in said]
    assert pairs("; ".join(written)) == said


def test_calls_of_a_turn_have_ids_of_their_own() -> None:
    assert len({call.id for call in read_calls(call_text([LOOK] * 5, "json"))}) == 5


@pytest.mark.parametrize(
    "text",
    [
        f"{WRITTEN[0]}",
        f"[{WRITTEN[0]}]",
        f"```\n{WRITTEN[0]}\n```",
        f"```json {WRITTEN[0]}",
        f"<tool_call>{WRITTEN[0]}",
        f"[TOOL_CALLS] [{WRITTEN[0]}]",
        '{"name": "check_sim_status", "parameters": {}}',
        '{"name": "check_sim_status", "arguments": "{}"}',
        '{"name": "check_sim_status"}',
        "commentary to=functions.check_sim_status json{}",
        f"<|python_tag|>{WRITTEN[0]}",
        "[TOOL_CALLS]check_sim_status[ARGS]{}",
        "<think>SIM first</think>\n" + f"<tool_call>\n{WRITTEN[0]}\n</tool_call>",
    ],
)
def test_forms_of_several_models(text: str) -> None:
    """Without a language, without a list, with Llama's name for arguments, with the OpenAI API's text, gpt-oss's."""
    assert pairs(text) == [LOOK]


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "I am done.", "```python\nprint(1)\n```", "done()", "a {} b", "{}", "[1]", "[" * 50_000),
        "[Order #W1] was cancelled. Anything else?",
        "{name}, your order is on its way.",
        "[Terms](https://x.y) apply to your return.",
        "Your codes:\n```\n[1] A12\n[2] B13\n```",
        "I was routed to=functions.look by mistake. Sorry!",
        "I never write <tool_call> or [TOOL_CALLS] in answers.",
    ],
)
def test_text_without_a_call_has_none(text: str) -> None:
    assert read_calls(text) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('```json\n{"name": "a", }\n```', "Expecting property name|Illegal trailing comma"),
        ("<tool_call></tool_call>", "Expecting value"),
        ('[{"name": "a"}, 1]', "a call must be an object"),
        ('<tool_call>1, "value": {"name": "a"}</tool_call>', "Extra data"),
        ('<tool_call>{"name": "a"}{"name": "a"}</tool_call>', "Extra data"),
        ("<tool_call>{'name': 'a'}</tool_call>", "Expecting property name"),
        ('[{"name": "a", ', "Expecting"),
        ('{"name": 5, "arguments": {}}', "name: Input should be a valid string"),
        ('{"name": "a", "arguments": []}', "arguments: Input should be a valid dictionary"),
        ('{"name": "a", "arguments": "x"}', "Expecting value"),
        ('{"name": "a", "arguments": {"x": NaN}}', "NaN"),
        ('{"name": "a", "arguments": {"x": 1e999}}', "out of range"),
        ('{"name": "a", "arguments": {"x": "\\ud800"}}', "surrogates"),
        ('{"name": "a", "arguments": {"x": ' + "[" * 70 + "]" * 70 + "}}", "nested too deep"),
        ('[{"name": ' + "[" * 50_000, "nested too deep|recursion"),
        ('{"name": "a", "arguments": {"x": "' + "y" * 10_000_000 + '"}}', f"{MOST_CHARS} are read"),
        ('{"name": "a", "arguments": {"x": ' + "9" * 5_000 + "}}", "digits"),
        ('{"name": "a"}} , {"name": "b"}', "Extra data"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, message: str) -> None:
    with pytest.raises(MalformedCall, match=message):
        read_calls(text)


def test_long_hostile_texts_take_no_time() -> None:
    for unit in ("<tool_call>", "```{", "[TOOL_CALLS]", "to=functions.a ", "{", '"'):
        text = unit * (MOST_CHARS // len(unit))
        try:
            read_calls(text)
        except MalformedCall as error:
            assert len(str(error)) < 1000


def test_answers_are_shown_alone_or_by_name() -> None:
    calls, results = [Call("1", "a", {}), Call("2", "b", {})], [Result("x", False), Result("y\nz", True)]
    assert answer_text(calls[:1], results[:1], "json") == "x"
    assert answer_text(calls, results, "json") == "a: x\nb: y\nz"
    assert answer_text(calls[:1], results[:1], "hermes") == "<tool_response>\nx\n</tool_response>"
    assert answer_text(calls, results, "hermes").count("<tool_response>") == 2
