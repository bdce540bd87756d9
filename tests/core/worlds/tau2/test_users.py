"""Simulated users without the package: what a script says, what a model is asked and how its answers are read."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from tasks.core.chat_servers.answers import ChatTurn, ToolCall
from tasks.core.config.params import Params
from tasks.core.tool_calls import Call, MalformedCall
from tasks.core.worlds.tau2 import users
from tasks.core.worlds.tau2.kind import Tau2Config
from tasks.core.worlds.tau2.users import Said, ScriptedUser, asking, heard_by_user, understood

PART = {
    "system": "You are Ann.",
    "tools": [{"function": {"name": name}} for name in ("look", "press")],
    "scenario": {"reason_for_call": "It hums.", "known_info": "I am Ann."},
}
HELLO = {"role": "assistant", "content": "Hi!"}


def script(*messages: dict[str, Any]) -> Said:
    return ScriptedUser(PART).reply([HELLO, *messages])


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def test_a_script_tells_what_the_scenario_has_does_as_it_is_told_and_ends() -> None:
    assert script() == Said("It hums.\nI am Ann.")
    (call,) = script({"role": "user", "content": "It hums."}, said(asking("press", '{"key": "x(y)"}'))).calls
    assert (call.name, call.arguments) == ("press", {"key": "x(y)"})
    answer = {"role": "tool", "requestor": "user", "content": "It hums no more."}
    assert script(said("`press({})`"), {"role": "user", "tool_calls": []}, answer, answer).text.count("hums") == 2
    assert script(said("Who are you?")) == Said(users.ALL_TOLD)
    assert script(said("I transfer you.")) == Said(users.TRANSFER)
    assert script(said("It is done.")) == Said(users.STOP)


@pytest.mark.parametrize("text", ["`run({})`", "`press([])`", "`press({)`", "press({})", "`press({" * 20_000])
def test_a_script_does_only_what_it_can(text: str) -> None:
    """No tool of it, arguments that are none, no back quotes, an endless text."""
    assert not script(said(text)).calls


def test_a_model_hears_its_own_part_alone() -> None:
    """As the package flips roles: without the agent's calls and their answers."""
    call = {"id": "1", "name": "look", "arguments": {"at": "it"}, "requestor": "user"}
    messages = [
        HELLO,
        {"role": "user", "content": "It hums."},
        {"role": "assistant", "tool_calls": [{**call, "requestor": "assistant"}]},
        {"role": "tool", "id": "1", "requestor": "assistant", "content": "secret"},
        said("Look."),
        {"role": "user", "tool_calls": [call]},
        {"role": "tool", "id": "1", "requestor": "user", "content": "a lamp"},
    ]
    heard = [dict(one) for one in heard_by_user(messages)]
    assert [one["role"] for one in heard] == ["user", "assistant", "user", "assistant", "tool"]
    assert heard[3]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at": "it"}'}
    assert heard[4] == {"role": "tool", "tool_call_id": "1", "content": "a lamp"} and "secret" not in json.dumps(heard)


def turn(text: str = "", *calls: tuple[str, str]) -> ChatTurn:
    return ChatTurn(text, True, "m", 1, 0, 1, tuple(ToolCall("x", name, written) for name, written in calls))


def test_calls_are_read_from_the_api_or_from_the_text_of_who_has_tools() -> None:
    wanted = Call("call_0", "look", {"at": "it"})
    assert understood(turn("", ("look", '{"at": "it"}')), has_tools=True) == Said("", (wanted,))
    written = '<tool_call>{"name": "look", "arguments": {"at": "it"}}</tool_call>'
    assert understood(turn(written), has_tools=True) == Said(written, (wanted,))
    assert understood(turn(written), has_tools=False) == Said(written)


def test_hostile_answers_of_a_user_are_text_or_nothing() -> None:
    assert understood(turn(" \n"), has_tools=True) is None
    assert understood(turn("\ud800 <|im_end|>"), has_tools=False) == Said("? <|im_end|>")
    for written in ('{"at": NaN}', "[]", "{", "[" * 50_000, '{"at": "\\ud800"}'):
        with pytest.raises(MalformedCall):
            understood(turn("", ("look", written)), has_tools=True)
    assert all(word.startswith("###") for word in users.STOP_WORDS)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"domain": "retail"}, "retail has no tickets, so no mode solo; set mode: user"),
        ({"mode": "user", "prompt": "ticket"}, "prompt: ticket is for mode: solo"),
    ],
)
def test_modes_that_a_domain_has_not_are_refused(knobs: dict[str, str], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Tau2Config.model_validate(knobs)


def test_training_with_a_user_is_refused() -> None:
    world = {"name": "tau2", "tau2": {"mode": "user"}}
    limits = {"collection": {"limits": {"max_turns": 101}}}
    with pytest.raises(ValidationError, match=r"world\.tau2\.mode: user is for scoring: .*; set iterations: 0"):
        Params.model_validate({"world": world, **limits, "iterations": 2})
    assert Params.model_validate({"world": world, **limits, "iterations": 0}).world.settings.only_scored
