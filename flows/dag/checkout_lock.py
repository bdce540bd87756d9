"""One run at a time in a checkout. The kernel holds the lock, so it is free again however its holder ends.

DVC locks too, but only one stage's paths while that stage runs: two runners would take turns stage by stage, and one
of them would fail at the first stage that both want.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

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
    """`checkout_lock` for a lock of another `path`; `place` says in the message what is locked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = _acquired(path, run)
    if lock is None:
        holder = _holder(path)
        if waiting is None:
            raise CheckoutBusy(f"{holder} works {place}; wait until it ends, or stop it, and try again")
        waiting(holder)
    while lock is None:
        time.sleep(POLL_S)
        lock = _acquired(path, run)
    try:
        yield
    finally:
        lock.close()


def _acquired(path: Path, run: str) -> Any | None:
    """The lock, or None when somebody else holds it."""
    from zc.lockfile import LockError, LockFile

    try:
        return LockFile(str(path), content_template=f"{run} (process {{pid}})")
    except LockError:
        return None


def _holder(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip() or "another run"
