"""One run at a time in a checkout. The kernel holds the lock, so it is free again however its holder ends.

DVC locks too, but only one stage's paths while that stage runs: two runners would take turns stage by stage, and one
of them would fail at the first stage that both want.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

LOCK = Path(".loopline/run.lock")
POLL_S = 0.5
Waiting = Callable[[str], None]
"""Called with the run that is waited for."""


class CheckoutBusy(RuntimeError):  # noqa: N818
    """Another run works there; the message says which."""


def checkout_lock(root: Path, run: str, waiting: Waiting | None = None) -> AbstractContextManager[None]:
    """Hold the checkout at `root` for the run called `run`.

    Where another run holds it: raises CheckoutBusy, or, given `waiting`, calls it once with the holder and waits.
    """
    return held(root / LOCK, run, "in this checkout", waiting)


@contextmanager
def held(path: Path, run: str, place: str, waiting: Waiting | None = None) -> Iterator[None]:
    """Hold the lock at `path` as `checkout_lock` does; `place` says in the message what is locked."""
    from filelock import FileLock, Timeout

    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        holder = _holder(path)
        if waiting is None:
            raise CheckoutBusy(f"{holder} works {place}; wait until it ends, or stop it, and try again") from None
        waiting(holder)
        lock.acquire(poll_interval=POLL_S)
    try:
        path.write_text(f"{run} (process {os.getpid()})\n", encoding="utf-8")
        yield
    finally:
        lock.release()


def _holder(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip() or "another run"
