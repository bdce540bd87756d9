"""A lock between processes, for what is made once and used by many."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def held_alone(lock: Path) -> Iterator[None]:
    """Hold the lock file, once no other process does. It stays, because removing it would let two in."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
