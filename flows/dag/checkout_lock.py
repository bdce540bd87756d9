"""One run at a time in a checkout.

While a stage runs the kernel holds the lock, so it is free again however its holder ends. The stages of a `dvc repro`
are processes of their own: between two of them the file names that `dvc repro`, and while it lives the checkout is its.

DVC locks too, but only one stage's paths while that stage runs: two runners would take turns stage by stage, and one
of them would fail at the first stage that both want.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.core.processes.running import Process, find_process

if TYPE_CHECKING:
    from filelock import FileLock

LOCK = Path(".loopline/run.lock")
POLL_S = 0.5
Waiting = Callable[[str], None]
"""Called with the run that is waited for."""


class CheckoutBusy(RuntimeError):  # noqa: N818
    """Another run works there; the message says which."""


def checkout_lock(
    root: Path, run: str, waiting: Waiting | None = None, dvc: Process | None = None
) -> AbstractContextManager[None]:
    """Hold the checkout at `root` for the run called `run`; for a stage of `dvc`, until that one ends.

    Where another run holds it: raises CheckoutBusy, or, given `waiting`, calls it once with the holder and waits.
    """
    name = run if dvc is None else f"dvc repro, at {run}"
    return held(root / LOCK, name, "in this checkout", waiting, dvc)


@contextmanager
def held(
    path: Path, run: str, place: str, waiting: Waiting | None = None, owner: Process | None = None
) -> Iterator[None]:
    """Hold the lock at `path` as `checkout_lock` does; `place` says in the message what is locked.

    `owner`, by default this process: who has it after the block, too, for as long as it lives.
    """
    from filelock import FileLock

    lock, here, is_told = FileLock(path), find_process(os.getpid()), False
    owner = owner or here
    while not _taken(lock, path, owner):
        if waiting is None:
            raise CheckoutBusy(f"{_named(path)} works {place}; wait until it ends, or stop it, and try again")
        if not is_told:
            waiting(_named(path))
        is_told = True
        time.sleep(POLL_S)
    try:
        path.write_text(f"{run} (process {owner.pid})\n{owner.pid} {owner.started}\n", encoding="utf-8")
        yield
    finally:
        if owner == here:
            path.write_text("", encoding="utf-8")
        lock.release()


def holder_of(path: Path) -> str | None:
    """Return the run that has the lock at `path`, by the file; None where it has ended."""
    owner = _owner(path)
    return _named(path) if owner is not None and owner.is_running else None


def _taken(lock: "FileLock", path: Path, owner: Process) -> bool:
    """Take the lock, unless another run has it. That of a `dvc repro` is not even tried: its next stage must get it."""
    from filelock import Timeout

    if _is_of_another(path, owner):
        return False
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return False
    if _is_of_another(path, owner):  # taken and given back in between
        lock.release()
        return False
    return True


def _is_of_another(path: Path, owner: Process) -> bool:
    found = _owner(path)
    return found is not None and found != owner and found.is_running


def _owner(path: Path) -> Process | None:
    with suppress(FileNotFoundError, ValueError):  # the latter: empty, or of an older version of this code
        _, second = path.read_text(encoding="utf-8").splitlines()
        pid, started = second.split()
        return Process(int(pid), int(started))
    return None


def _named(path: Path) -> str:
    with suppress(FileNotFoundError):
        return path.read_text(encoding="utf-8").partition("\n")[0] or "another run"
    return "another run"
