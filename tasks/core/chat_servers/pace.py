"""Rate limits: a maximum of requests and tokens per minute, and no request while the server wants a pause.

pyrate-limiter enforces the limits with a log of the last minute. The pause is ours: the vendor's client holds back only
the request that was refused, so the others would be refused one by one.
"""

import asyncio
import math
import time

from pyrate_limiter import Limiter, Rate

MINUTE_S = 60.0
UNITS = 10_000
"""The log has an entry per unit: higher token limits are counted in units of several tokens, rounded up."""


class Pace:
    """Rate limits for the requests of one event loop."""

    def __init__(self, requests_per_minute: int | None, tokens_per_minute: int | None) -> None:
        self._requests = None if requests_per_minute is None else _limiter(requests_per_minute)
        self._tokens_per_unit = math.ceil((tokens_per_minute or 1) / UNITS)
        self._most_units = (tokens_per_minute or 1) // self._tokens_per_unit
        self._tokens = None if tokens_per_minute is None else _limiter(self._most_units)
        self._next = asyncio.Lock()
        self._paused_until = float("-inf")

    async def begin(self, tokens: int) -> None:
        """Wait until a request of `tokens` tokens may begin, after all earlier requests.

        A request larger than the limit may begin when no other request began in the last minute.
        """
        async with self._next:
            if self._requests is not None:
                await self._requests.try_acquire_async()
            if self._tokens is not None:
                units = math.ceil(tokens / self._tokens_per_unit)
                await self._tokens.try_acquire_async(weight=min(units, self._most_units))
            while (wait := self._paused_until - time.monotonic()) > 0:
                await asyncio.sleep(wait)

    def pause(self, seconds: float) -> None:
        """Let no request begin for this many seconds."""
        self._paused_until = max(self._paused_until, time.monotonic() + seconds)

    def close(self) -> None:
        """End the threads that clear the logs."""
        for limiter in (self._requests, self._tokens):
            if limiter is not None:
                limiter.close()


def _limiter(count: int) -> Limiter:
    return Limiter(Rate(count, int(MINUTE_S * 1000)), buffer_ms=1)
