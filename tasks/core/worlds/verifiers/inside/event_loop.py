"""An event loop for a confined process: no sockets, no threads, one coroutine after another in the same order."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Stalled(Exception):  # noqa: N818
    """All coroutines wait for something that will never come here: a socket, a program, a thread."""


class _Clock:
    """The selector of a loop at which nothing can arrive but the time."""

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Stalled("the environment waits for something outside of its process")
        time.sleep(max(0.0, timeout))
        return []


class ConfinedLoop(asyncio.BaseEventLoop):
    """An event loop of callbacks and timers. What is given to a thread runs at once."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Clock()

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: there are none."""

    def _write_to_self(self) -> None:
        """Do nothing: there is no other thread."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns. Raises what it raises, and Stalled."""
    loop = ConfinedLoop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(work)
    finally:
        with contextlib.suppress(Exception):
            loop.close()
