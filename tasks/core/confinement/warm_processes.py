"""Processes that serve one episode after another, forked by the one with the data and kept while idle."""

import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from tasks.core.confinement.data_zygote import DataZygote
from tasks.core.confinement.forked_process import ForkedProcess


class Lasting(Protocol):
    """A process that may be kept."""

    zygote: DataZygote
    uses: int

    @property
    def pid(self) -> int | None:
        """Its id; None when it has ended."""

    @property
    def cpu_seconds(self) -> float:
        """CPU time that it has used."""

    @property
    def quiet(self) -> bool:
        """Nothing has come from it that nobody asked for, not even its end."""

    def end(self) -> object:
        """End it. Idempotent, never raises."""


P = TypeVar("P", bound=Lasting)


class WarmProcess(ForkedProcess):
    """One that runs no agent's code. Not thread-safe: one episode or evaluation holds it at a time."""

    def __init__(self, zygote: DataZygote, kind: str) -> None:
        """Have the zygote's engine fork one. Raises WorldFault."""
        super().__init__(zygote.engine, kind)
        self.zygote, self.kind = zygote, kind
        self.uses = 0
        self.cpu_seconds = 0.0
        """CPU time that it had used when it last said so."""

    @property
    def quiet(self) -> bool:
        """See `Lasting`."""
        return self.link.quiet


class WarmProcesses(Generic[P]):
    """All of one kind. Thread-safe."""

    def __init__(
        self, start: Callable[[DataZygote], P], most_idle: int, most_uses: int, most_cpu_seconds: float
    ) -> None:
        """Over a limit a process is ended instead of kept."""
        self._start, self._most_idle = start, most_idle
        self._most_uses, self._most_cpu_seconds = most_uses, most_cpu_seconds
        self._lock = threading.Lock()
        self._idle: list[P] = []
        self._closed = False

    def take(self, zygote: DataZygote) -> P:
        """An idle one of this zygote's, the one used last, or a new one. Raises WorldFault."""
        found, useless = None, []
        with self._lock:
            while self._idle and found is None:
                process = self._idle.pop()
                if process.zygote is zygote and process.quiet:
                    found = process
                else:
                    useless.append(process)
        for process in useless:
            process.end()
        taken = found or self._start(zygote)
        taken.uses += 1
        return taken

    def give_back(self, process: P) -> None:
        """Keep it for the next one, if it may be. Only one that answered all that it was asked may come back."""
        with self._lock:
            keep = (
                not self._closed
                and process.uses < self._most_uses
                and process.cpu_seconds < self._most_cpu_seconds
                and len(self._idle) < self._most_idle
            )
            if keep:
                self._idle.append(process)
        if not keep:
            process.end()

    @property
    def idle_pids(self) -> list[int]:
        """Process ids of those that wait."""
        with self._lock:
            return [process.pid for process in self._idle if process.pid is not None]

    def close(self) -> None:
        """End the idle ones; those in use are not kept any more. Idempotent."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for process in idle:
            process.end()
