"""An event loop in its own thread: requests of many conversations proceed while the caller does something else."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


class EventLoopThread:
    """A thread that runs coroutines until `close`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start `work`. Cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` and return its result. Raises what `work` raises."""
        return self.submit(work).result()

    def call(self, function: Callable[[], None]) -> None:
        """Call `function` in the loop's thread, after everything submitted earlier."""
        self._loop.call_soon_threadsafe(function)

    def close(self) -> None:
        """Stop at once, abandoning unfinished work, and end the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
