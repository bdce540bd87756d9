"""The client against a real server on a local socket."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tasks.core.chat_servers import client as client_module
from tasks.core.chat_servers.answers import ChatApiError, ChatTurn, PromptTooLong
from tasks.core.chat_servers.client import Call, ChatClient, Pace
from tasks.core.interfaces.engine import SamplingSettings
from tasks.core.interfaces.world import Message

SAMPLING = SamplingSettings(temperature=0.5, max_tokens=20, stop_ids=())
MESSAGES: list[Message] = [{"role": "user", "content": "Hello."}]
Ask = Callable[..., tuple[ChatTurn, int]]


@pytest.fixture
def ask(server: Any, configured: Callable[..., Any]) -> Ask:
    """Ask the server of the test once, with a client that is closed afterwards."""

    def once(**changes: Any) -> tuple[ChatTurn, int]:
        client = ChatClient(configured(server, **changes))
        call = client.call(MESSAGES, SAMPLING, 7)
        (turn,) = asyncio.run(closing(client, client.complete(call)))
        return turn, call.attempts

    return once


async def closing(client: ChatClient, *work: Any) -> list[Any]:
    """The results of all `work`, after which the client is closed."""
    try:
        return await asyncio.gather(*work)
    finally:
        await client.close()


def test_a_turn_is_asked_for_and_read(server: Any, ask: Ask) -> None:
    answer, attempts = ask()
    assert (answer.text, answer.complete, answer.model, attempts) == ("1 messages", True, "tiny-dated", 1)
    assert (answer.prompt_tokens, answer.cached_tokens, answer.answer_tokens) == (100, 40, 10)
    asked = {"model": "tiny", "messages": MESSAGES, "max_tokens": 20, "temperature": 0.5, "seed": 7}
    assert server.requests == [asked]


def test_likeliest_tokens_alone_are_asked_for_by_both_settings(server: Any, configured: Callable[..., Any]) -> None:
    client = ChatClient(configured(server))
    call = client.call(MESSAGES, replace(SAMPLING, top_k=3, top_p=0.9), 7)
    asyncio.run(closing(client, client.complete(call)))
    assert (server.requests[0]["top_k"], server.requests[0]["top_p"]) == (3, 0.9)


def test_what_a_server_refuses_is_not_sent(server: Any, ask: Ask) -> None:
    ask(send_seed=False)
    assert "seed" not in server.requests[0]


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 500},
        {"status": 503, "body": b"<html>busy</html>"},
        {"body": b'{"choices": [', "cut": True},
        {"body": b'{"choices": [{"mess'},
        {"body": b"{}"},
        {"status": 200, "cut": True},
    ],
    ids=["500", "503", "hung up", "malformed", "empty", "nothing"],
)
def test_a_fault_that_may_pass_is_asked_again(fault: dict[str, Any], server: Any, ask: Ask) -> None:
    server.fail(times=2, **fault)
    answer, attempts = ask()
    assert (answer.text, attempts, len(server.requests)) == ("1 messages", 3, 3)


def test_silence_ends_after_the_timeout(server: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "LONGEST_SILENCE_S", 0.3)
    server.fail(silent=True)
    answer, attempts = ask()
    assert (answer.text, attempts) == ("1 messages", 2)


def test_too_many_requests_wait_as_long_as_the_server_asks(server: Any, ask: Ask) -> None:
    server.refuse(429, "slow down", "rate_limit_exceeded", retry_after="0.4")
    begun = time.monotonic()
    answer, attempts = ask()
    assert (answer.text, attempts) == ("1 messages", 2)
    assert time.monotonic() - begun >= 0.4


def test_a_pause_that_is_asked_for_holds_all_requests(server: Any, configured: Callable[..., Any]) -> None:
    """While one request was told to wait, none begins: the other one comes when the pause is over."""
    client = ChatClient(configured(server, concurrency=2))
    server.refuse(429, retry_after="0.5")

    async def later() -> None:
        while client._pace._paused_until < time.monotonic():
            await asyncio.sleep(0.01)
        paused_until = client._pace._paused_until
        await client.complete(client.call(MESSAGES, SAMPLING, 8))
        assert time.monotonic() >= paused_until

    asyncio.run(closing(client, client.complete(client.call(MESSAGES, SAMPLING, 7)), later()))
    assert len(server.requests) == 3


def test_a_pause_over_the_limit_is_an_error(server: Any, ask: Ask) -> None:
    server.refuse(429, "slow down", retry_after="3600")
    with pytest.raises(ChatApiError, match=r"gave up after 1 attempts.*slow down, which asks to wait 3600 s"):
        ask()


def test_faults_that_do_not_pass_end_in_one_error(server: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "ATTEMPTS", 3)
    server.fail(times=9, status=502)
    with pytest.raises(ChatApiError, match="gave up after 3 attempts; the last error: status 502"):
        ask()
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (404, "model_not_found", "the server refused the request .status 404: no"),
        (400, "", "the server refused the request .status 400: no"),
        (429, "insufficient_quota", "the account's quota is used up"),
    ],
)
def test_a_refusal_is_not_asked_again(status: int, code: str, message: str, server: Any, ask: Ask) -> None:
    server.refuse(status, code=code, times=2)
    with pytest.raises(ChatApiError, match=message):
        ask()
    assert len(server.requests) == 1


def test_a_stream_is_not_asked_for_again(server: Any, ask: Ask) -> None:
    server.fail(body=b"data: {}\n\n")
    with pytest.raises(ChatApiError, match="answers by a stream, which it was not asked for; check"):
        ask()
    assert len(server.requests) == 1


def test_a_wrong_key_is_one_error_that_does_not_show_it(server: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPLINE_TEST_KEY", "sk-wrong-but-still-secret")
    with pytest.raises(ChatApiError, match=r"refused the key.*provided: \(key\).*check LOOPLINE_TEST_KEY") as caught:
        ask()
    assert "sk-wrong" not in str(caught.value)
    assert len(server.requests) == 1


@pytest.mark.parametrize("key", ["", "  ", "line\nbreak", "naïve"])
def test_a_missing_or_broken_key_is_one_error(key: str, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPLINE_TEST_KEY", key)
    with pytest.raises(ChatApiError, match="the environment variable LOOPLINE_TEST_KEY holds no key"):
        ask()


def test_a_server_that_is_not_there_is_one_error(server: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "ATTEMPTS", 2)
    with pytest.raises(ChatApiError, match=r"tiny at http://127.0.0.1:1/v1: gave up after 2 .*connection failed"):
        ask(base_url="http://127.0.0.1:1/v1")


def test_a_full_context_is_told_apart(server: Any, ask: Ask) -> None:
    server.refuse(400, "too long", "context_length_exceeded")
    with pytest.raises(PromptTooLong):
        ask()


def abandon(client: ChatClient, call: Call, when: Callable[[], bool]) -> BaseException | None:
    """The end of a call that is abandoned as soon as `when`: its error, if it has one."""

    async def asked() -> Any:
        task = asyncio.ensure_future(client.complete(call))
        while not when():
            await asyncio.sleep(0.01)
        call.abandon()
        return await closing(client, asyncio.wait_for(task, 30))

    try:
        asyncio.run(asked())
    except BaseException as error:
        return error
    return None


def test_who_waits_no_longer_is_let_go(server: Any, configured: Callable[..., Any]) -> None:
    """A request that waits a minute for its next attempt ends at once."""
    client = ChatClient(configured(server))
    server.refuse(429, retry_after="60")
    call = client.call(MESSAGES, SAMPLING, 7)
    assert isinstance(abandon(client, call, lambda: call.wait_s == 60.0), asyncio.CancelledError)
    assert len(server.requests) == 1


def test_an_answer_under_way_is_waited_for_though_nobody_asks_any_more(
    serve: Callable[..., Any], configured: Callable[..., Any]
) -> None:
    client = ChatClient(configured(serve(lambda body: (time.sleep(0.3), ("late", "stop"))[1])))
    call = client.call(MESSAGES, SAMPLING, 7)
    assert abandon(client, call, lambda: call.in_flight) is None
    assert call.turn is not None and call.turn.text == "late"


def test_a_server_that_wants_no_key_gets_none(serve: Callable[..., Any], configured: Callable[..., Any]) -> None:
    server = serve(lambda body: ("hi", "stop"))
    with pytest.raises(ChatApiError, match=r"refused the key \(status 401: Incorrect API key provided: \)"):
        client = ChatClient(configured(server, key_variable=None))
        asyncio.run(closing(client, client.complete(client.call(MESSAGES, SAMPLING, 7))))


MINUTE_S = 1.0


@pytest.fixture(autouse=True)
def short_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MINUTE_S", MINUTE_S)


def begun(pace: Pace, *tokens: int) -> list[float]:
    """Seconds after which requests of so many tokens began that were asked for at once."""
    start = time.monotonic()

    async def ask(count: int) -> float:
        await pace.begin(count)
        return time.monotonic() - start

    async def ask_all() -> list[float]:
        return await asyncio.gather(*(ask(count) for count in tokens))

    try:
        return asyncio.run(ask_all())
    finally:
        pace.close()


def test_no_minute_sees_more_requests_than_allowed() -> None:
    times = begun(Pace(requests_per_minute=2, tokens_per_minute=None), 1, 1, 1, 1, 1)
    assert times == sorted(times)
    assert times[1] < MINUTE_S <= times[2] and times[3] < 2 * MINUTE_S <= times[4]


def test_no_minute_sees_more_tokens_than_allowed() -> None:
    times = begun(Pace(None, tokens_per_minute=100), 60, 41, 59, 1)
    assert MINUTE_S <= times[1] <= times[2] < 2 * MINUTE_S <= times[3]


def test_limits_of_millions_are_counted_in_units_and_never_exceeded() -> None:
    times = begun(Pace(None, tokens_per_minute=3_000_000), 1_500_000, 1_499_000, 2_000)
    assert times[1] < MINUTE_S <= times[2]


def test_a_request_over_the_limit_goes_alone() -> None:
    times = begun(Pace(None, tokens_per_minute=100), 500, 1)
    assert times[1] >= MINUTE_S


def test_a_pause_holds_everything_and_the_longer_one_wins() -> None:
    pace = Pace(None, None)
    pace.pause(0.4)
    pace.pause(0.1)
    start = time.monotonic()
    begun(pace, 1)
    assert time.monotonic() - start >= 0.39
