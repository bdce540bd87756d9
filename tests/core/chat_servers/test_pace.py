"""Rate limits by the clock, with minutes of a second."""

import asyncio
import time

import pytest

from tasks.core.chat_servers import client as client_module
from tasks.core.chat_servers.client import Pace

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
