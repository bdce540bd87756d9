"""Processes that serve one episode after another: forked by the process with the data and kept while idle."""

import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from tasks.core.confinement.data_zygote import DataZygote
from tasks.core.confinement.fork_server import ForkedProcess


class Lasting(Protocol):
    """A process that may be kept."""

    zygote: DataZygote
    uses: int

    @property
    def pid(self) -> int | None:
        """Process id; None after its end."""

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds used so far."""

    @property
    def quiet(self) -> bool:
        """Whether nothing has arrived unasked, not even the end of the connection."""

    def end(self) -> object:
        """End the process. Idempotent, never raises."""


P = TypeVar("P", bound=Lasting)


class WarmProcess(ForkedProcess):
    """A reusable process that runs no agent's code. Not thread-safe: one episode or evaluation uses it at a time."""

    def __init__(self, zygote: DataZygote, kind: str) -> None:
        """Fork a process from the zygote's engine. Raises WorldFault."""
        super().__init__(zygote.engine, kind)
        self.zygote, self.kind = zygote, kind
        self.uses = 0
        self.cpu_seconds = 0.0
        """CPU seconds used, as last reported by the process."""

    @property
    def quiet(self) -> bool:
        """Whether nothing has arrived unasked (see `Lasting`)."""
        return self.link.quiet


class WarmProcesses(Generic[P]):
    """The processes of one kind. Thread-safe."""

    def __init__(
        self, start: Callable[[DataZygote], P], most_idle: int, most_uses: int, most_cpu_seconds: float
    ) -> None:
        """Set the limits beyond which a process is ended instead of kept."""
        self._start, self._most_idle = start, most_idle
        self._most_uses, self._most_cpu_seconds = most_uses, most_cpu_seconds
        self._lock = threading.Lock()
        self._idle: list[P] = []
        self._closed = False

    def take(self, zygote: DataZygote) -> P:
        """Return this zygote's most recently used idle process, or start one. Raises WorldFault."""
        reused, useless = None, []
        with self._lock:
            while self._idle and reused is None:
                process = self._idle.pop()
                if process.zygote is zygote and process.quiet:
                    reused = process
                else:
                    useless.append(process)
        for process in useless:
            process.end()
        taken = reused or self._start(zygote)
        taken.uses += 1
        return taken

    def give_back(self, process: P) -> None:
        """Keep the process for its next user if the limits allow. It must have answered every request."""
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
        """Process ids of the idle processes."""
        with self._lock:
            return [process.pid for process in self._idle if process.pid is not None]

    def close(self) -> None:
        """End the idle processes; processes in use are ended when given back. Idempotent."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for process in idle:
            process.end()
