import random

import pytest

from tasks.core.engines.chat_api.pace import LONGEST_BACKOFF_S, Pace, Ticket, backoff


def begun(pace: Pace, now: float, tokens: int = 1) -> Ticket:
    found = pace.begin(now, tokens)
    assert isinstance(found, Ticket)
    return found


def test_no_minute_sees_more_requests_than_allowed() -> None:
    pace = Pace(requests_per_minute=2, tokens_per_minute=None)
    begun(pace, 0.0)
    begun(pace, 10.0)
    assert pace.begin(15.0, 1) == 45.0
    begun(pace, 60.0)
    assert pace.begin(60.0, 1) == 10.0


def test_no_minute_sees_more_tokens_than_allowed() -> None:
    pace = Pace(None, tokens_per_minute=100)
    begun(pace, 0.0, 60)
    assert pace.begin(1.0, 41) == 59.0
    begun(pace, 1.0, 40)
    begun(pace, 60.5, 60)


def test_an_estimate_is_replaced_by_what_the_server_counted() -> None:
    pace = Pace(None, tokens_per_minute=100)
    begun(pace, 0.0, 90).tokens = 20
    begun(pace, 1.0, 80)


def test_a_request_over_the_limit_goes_alone() -> None:
    pace = Pace(None, tokens_per_minute=100)
    begun(pace, 0.0, 500)
    assert pace.begin(1.0, 1) == 59.0


def test_a_pause_holds_everything_and_the_longer_one_wins() -> None:
    pace = Pace(None, None)
    pace.pause(10.0)
    pace.pause(5.0)
    assert pace.begin(4.0, 1) == 6.0
    begun(pace, 10.0)


@pytest.mark.parametrize("attempt", [0, 1, 5, 6, 1000])
def test_backoff_doubles_up_to_a_cap_and_is_spread(attempt: int) -> None:
    generator = random.Random(0)
    waits = [backoff(attempt, generator) for _ in range(200)]
    longest = min(LONGEST_BACKOFF_S, 2.0 ** min(attempt, 10))
    assert longest / 2 <= min(waits) < 0.55 * longest and 0.95 * longest < max(waits) <= longest
