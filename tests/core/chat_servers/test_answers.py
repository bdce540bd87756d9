import json
from datetime import UTC, datetime

import pytest

from tasks.core.chat_servers.answers import ChatApiError, PassingFault, PromptTooLong, fault, read_answer, retry_after

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def body(**changes: object) -> bytes:
    choice = {"message": {"content": "hi"}, "finish_reason": "stop"}
    return json.dumps({"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 2}, **changes}).encode()


def test_an_answer_is_read_with_what_servers_leave_out() -> None:
    answer = read_answer(body())
    assert (answer.text, answer.complete, answer.model, answer.cached_tokens) == ("hi", True, "", 0)
    cut = read_answer(body(choices=[{"message": {"content": None}, "finish_reason": "length"}], model="m"))
    assert (cut.text, cut.complete, cut.model) == ("", False, "m")
    uncounted = [read_answer(body(usage=usage), 41) for usage in (None, {}, {"completion_tokens": None})]
    assert {(answer.prompt_tokens, answer.answer_tokens) for answer in uncounted} == {(11, 1)}  # 41 / 4, 2 / 4
    refused = read_answer(body(choices=[{"message": {"content": None, "refusal": "I must not"}}]))
    assert refused.text == "I must not"


def test_what_can_be_read_is_read() -> None:
    calls = [
        {"id": None, "function": {"name": "f", "arguments": arguments}} for arguments in (None, {"a": 1}, '{"a": 1}')
    ]
    parts = [{"type": "text", "text": "a"}, {"type": "thinking"}, {"type": "text", "text": "b"}]
    answer = read_answer(body(model=None, choices=[{"message": {"content": parts, "tool_calls": calls}}]))
    assert (answer.text, answer.model) == ("ab", "")
    assert [(call.id, call.arguments) for call in answer.calls] == [("", "{}"), ("", '{"a": 1}'), ("", '{"a": 1}')]
    for raw, text in ((rb"cut \ud83d here", "cut ? here"), (rb"\ud83d\ude00", "\U0001f600"), (b"a\xff", "a\ufffd")):
        assert read_answer(b"\xef\xbb\xbf" + body().replace(b"hi", raw)).text == text
    with pytest.raises(ChatApiError, match="by a stream"):
        read_answer(b'data: {"choices": []}\n\n')


@pytest.mark.parametrize(
    "broken", [b"", b"{", b"[]", b'{"choices": []}', body(choices=[]), b"<html>", b'{"error": {"message": "x"}}']
)
def test_no_completion_may_pass(broken: bytes) -> None:
    with pytest.raises(PassingFault, match="not a chat completion"):
        read_answer(broken)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Thu, 01 Jan 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
    ],
)
def test_how_long_the_server_asks_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


@pytest.mark.parametrize(
    ("status", "code", "message", "kind"),
    [
        (429, "rate_limit_exceeded", "slow down", PassingFault),
        (429, "insufficient_quota", "pay", ChatApiError),
        (503, "", "", PassingFault),
        (401, "invalid_api_key", "", ChatApiError),
        (404, "model_not_found", "", ChatApiError),
        (400, "", "seed is not supported", ChatApiError),
        (400, "context_length_exceeded", "", PromptTooLong),
        (400, "", "This model's maximum context length is 128 tokens", PromptTooLong),
    ],
)
def test_which_faults_may_pass(status: int, code: str, message: str, kind: type[Exception]) -> None:
    assert type(fault(status, {"error": {"message": message, "code": code}})) is kind
    assert type(fault(503, None)) is PassingFault
    assert "plain" in str(fault(400, {"error": "plain"}))
