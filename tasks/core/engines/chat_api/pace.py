"""Rate limits: at most so many requests and tokens begin in any minute, and none while the server asked for a pause."""

import random
from collections import deque
from dataclasses import dataclass

WINDOW_S = 60.0
FIRST_BACKOFF_S = 1.0
LONGEST_BACKOFF_S = 60.0


@dataclass
class Ticket:
    """One request that has begun: when, and for how many tokens (an estimate until its answer is in)."""

    begun: float
    tokens: int


class Pace:
    """A sliding window of one minute. Not thread-safe, and it knows no clock: `now` is in seconds of any steady one."""

    def __init__(self, requests_per_minute: int | None, tokens_per_minute: int | None) -> None:
        self._requests, self._tokens = requests_per_minute, tokens_per_minute
        self._window: deque[Ticket] = deque()
        self._paused_until = float("-inf")

    def begin(self, now: float, tokens: int) -> Ticket | float:
        """A ticket, if a request of `tokens` tokens may begin now; otherwise the seconds after which to ask again.

        A request that is larger than the limit may begin when no other one is in the window.
        """
        if now < self._paused_until:
            return self._paused_until - now
        while self._window and self._window[0].begun <= now - WINDOW_S:
            self._window.popleft()
        if self._is_full(tokens):
            return self._window[0].begun + WINDOW_S - now
        ticket = Ticket(now, tokens)
        self._window.append(ticket)
        return ticket

    def pause(self, until: float) -> None:
        """Let nothing begin before `until`."""
        self._paused_until = max(self._paused_until, until)

    def _is_full(self, tokens: int) -> bool:
        if not self._window:
            return False
        if self._requests is not None and len(self._window) >= self._requests:
            return True
        return self._tokens is not None and sum(item.tokens for item in self._window) + tokens > self._tokens


def backoff(attempt: int, generator: random.Random) -> float:
    """Seconds to wait after the failure of `attempt` (0 first): doubling, capped, and spread over its upper half."""
    longest = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(attempt, 32))
    return longest * generator.uniform(0.5, 1.0)
