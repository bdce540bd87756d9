"""The rules between text and protocol, on observations and turns as servers and agents send them."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.core.worlds.openenv.conversation import OpenEnvMismatch, field, judged, opening, shown, turn_action
from tasks.core.worlds.openenv.kind import OpenEnvConfig, OpenEnvVerdict

CHAT = {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}], "metadata": {"a": 1}}


def test_text_is_shown_as_it_is_and_other_values_as_json() -> None:
    seen: dict[str, Any] = {"board": [[0, 1]], "message": "Your move.", "left": 3, "metadata": {"seed": 1}}
    assert shown(seen, ()) == "board: [[0, 1]]\nmessage: Your move.\nleft: 3"
    assert shown(seen, ("message", "board")) == "Your move.\n[[0, 1]]"
    assert shown(CHAT, ("messages.1.content",)) == "U"
    assert shown({"message": "a\ud800b"}, ("message",)) == "a?b"


def test_fields_that_no_observation_has_are_named() -> None:
    assert shown({"message": "m", "error": None}, ("error", "message")) == "m"
    with pytest.raises(OpenEnvMismatch, match=r"none of text, error in an observation with message"):
        shown({"message": "m"}, ("text", "error"))
    assert field(CHAT, "messages.7.content") is field(CHAT, "messages.role") is field(CHAT, "x") is None


def test_an_episode_opens_with_the_servers_messages_or_with_the_instruction() -> None:
    assert opening(CHAT, "Win.", OpenEnvConfig(prompt="messages")) == CHAT["messages"]
    said = opening({"board": "..X"}, "Win.", OpenEnvConfig(observation=("board",)))
    assert said == [{"role": "user", "content": "Win.\n\n..X"}]
    with pytest.raises(OpenEnvMismatch, match="prompt: metadata holds no chat messages"):
        opening(CHAT, "Win.", OpenEnvConfig(prompt="metadata"))


@pytest.mark.parametrize(
    ("rules", "turn", "action", "blocks"),
    [
        ({"action": {"message": "$text"}}, " Hi ", {"message": " Hi "}, 1),
        ({"action": {"message": "$text"}, "reads": "answer"}, "<think>so</think><answer> up </answer>", "up", 1),
        ({"action": {"message": "$text"}, "reads": "answer"}, "up", None, 0),
        ({"action": {"code": "$text"}, "reads": "code"}, "x\n```python\nf()\n```", {"code": "f()\n"}, 1),
        ({"action": {"code": "$text"}, "reads": "code"}, "no code", None, 0),
        ({"action": {"move": "$json"}}, "3", {"move": 3}, 1),
        ({"action": {"move": "$json"}}, "three", None, 0),
        ({"action": {"move": "$json"}}, "[" * 100_000, None, 0),
        (
            {
                "action": {
                    "type": "call_tool",
                    "tool_name": "echo",
                    "arguments": {"message": "$text", "n": [1, "$text"]},
                }
            },
            "hi",
            {"type": "call_tool", "tool_name": "echo", "arguments": {"message": "hi", "n": [1, "hi"]}},
            1,
        ),
    ],
)
def test_what_a_turn_sends(rules: dict[str, Any], turn: str, action: object, blocks: int) -> None:
    found = turn_action(turn, OpenEnvConfig(**rules), "first")
    assert found.action == ({"message": action} if isinstance(action, str) else action)
    assert found.blocks == blocks


@given(st.text())
def test_any_turn_is_sent_as_it_is(turn: str) -> None:
    assert turn_action(turn, OpenEnvConfig(action={"message": "$text", "id": "$index"}), "first").action == {
        "message": turn,
        "id": "$index",
    }


@pytest.mark.parametrize(
    ("total", "rules", "success", "score"),
    [
        (1.0, {}, True, 1.0),
        (0.4, {}, False, 0.4),
        (7.0, {}, True, 1.0),
        (-3.0, {"lowest": -5, "highest": 5, "solved": 2}, False, 0.2),
        (2.0, {"lowest": -5, "highest": 5, "solved": 2}, True, 0.7),
        (0.0, {"success": "won", "score": "info.grade"}, True, 0.25),
        (9.0, {"success": "lost"}, False, 1.0),
    ],
)
def test_the_verdict_is_of_rewards_or_of_fields(
    total: float, rules: dict[str, Any], success: bool, score: float
) -> None:
    verdict = judged({"won": True, "lost": "yes", "info": {"grade": 0.25}}, total, OpenEnvVerdict(**rules))
    assert (verdict.success, verdict.score) == (success, pytest.approx(score))


@pytest.mark.parametrize(
    ("observation", "rules", "message"),
    [
        ({"grade": None}, {"score": "grade"}, "score: grade is None, no number"),
        ({}, {"score": "grade"}, "score: grade is None, no number"),
        ({"grade": math.nan}, {"score": "grade"}, "score: grade is nan, no number"),
        ({"grade": "B"}, {"score": "grade"}, "score: grade is 'B', no number"),
        ({"won": None}, {"success": "won"}, "success: won is null at the end of an episode"),
    ],
)
def test_an_ended_episode_without_its_verdict_is_an_error(
    observation: dict[str, Any], rules: dict[str, str], message: str
) -> None:
    with pytest.raises(OpenEnvMismatch, match=rf"world\.openenv\.verdict\.{message}"):
        judged(observation, 0.0, OpenEnvVerdict(**rules))


def test_an_episode_that_was_cut_has_no_verdict_yet() -> None:
    verdict = judged({}, 1.0, OpenEnvVerdict(success="won", score="grade"), ended=False)
    assert (verdict.success, verdict.score) == (False, 0.0)
