"""A pool's only zygote: started on first use, replaced after it breaks."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from tasks.core.confinement.zygote_process import ZygoteProcess
from tasks.core.interfaces.world import WorldFault

Z = TypeVar("Z", bound=ZygoteProcess)


class LiveZygote(Generic[Z]):
    """A thread-safe holder of one zygote. Processes forked by a broken zygote end with their own WorldFault."""

    def __init__(self) -> None:
        self._lock, self._start_lock = threading.Lock(), threading.Lock()
        self._zygote: Z | None = None
        self._closed = False

    def get(self, start: Callable[[], Z]) -> Z:
        """Return the running zygote, or start one. Raises WorldFault when the pool is closed."""
        with self._start_lock:
            with self._lock:
                if self._closed:
                    raise WorldFault("the pool is closed")
                zygote = self._zygote
            if zygote is not None and zygote.alive:
                return zygote
            if zygote is not None:
                zygote.close()
            fresh = start()
            with self._lock:
                self._zygote, closed = fresh, self._closed
            if closed:
                fresh.close()
                raise WorldFault("the pool is closed")
            return fresh

    @property
    def pids(self) -> list[int]:
        """Process ids that live as long as the zygote."""
        with self._lock:
            zygote = self._zygote
        return [] if zygote is None else zygote.pids

    def close(self) -> None:
        """End the zygote. Idempotent."""
        with self._lock:
            self._closed = True
            zygote, self._zygote = self._zygote, None
        if zygote is not None:
            zygote.close()
