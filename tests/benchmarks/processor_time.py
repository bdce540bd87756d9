"""Wall-clock and processor time of this process and all that it started, with pauses."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil


def processor_s() -> float:
    """Processor seconds of this process and those below it, ended ones included."""
    me = psutil.Process()
    return float(sum(sum(process.cpu_times()[:4]) for process in (me, *me.children(recursive=True))))


class Clock:
    """Runs from its making on, but for what is done `paused`."""

    def __init__(self) -> None:
        self._begin = time.perf_counter(), processor_s()

    def read(self) -> tuple[float, float]:
        """Seconds and processor seconds so far."""
        return time.perf_counter() - self._begin[0], processor_s() - self._begin[1]

    @contextmanager
    def paused(self) -> Iterator[None]:
        before = self.read()
        try:
            yield
        finally:
            after = self.read()
            self._begin = self._begin[0] + after[0] - before[0], self._begin[1] + after[1] - before[1]
