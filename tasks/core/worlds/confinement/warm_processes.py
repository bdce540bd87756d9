"""Processes that serve one episode after another, forked by the one with the data and kept while idle."""

import threading

from tasks.core.worlds.confinement.data_zygote import DataZygote
from tasks.core.worlds.confinement.forked_process import ForkedProcess


class WarmProcess(ForkedProcess):
    """One of them. Not thread-safe: one episode or evaluation holds it at a time."""

    def __init__(self, zygote: DataZygote, kind: str) -> None:
        """Have the zygote's engine fork one. Raises WorldFault."""
        super().__init__(zygote.engine, kind)
        self.zygote, self.kind = zygote, kind
        self.uses = 0
        self.cpu_seconds = 0.0
        """CPU time that it had used when it last said so."""


class WarmProcesses:
    """All of one kind. Thread-safe."""

    def __init__(self, kind: str, most_idle: int, most_uses: int, most_cpu_seconds: float) -> None:
        """Over a limit a process is ended instead of kept."""
        self._kind, self._most_idle = kind, most_idle
        self._most_uses, self._most_cpu_seconds = most_uses, most_cpu_seconds
        self._lock = threading.Lock()
        self._idle: list[WarmProcess] = []
        self._closed = False

    def take(self, zygote: DataZygote) -> WarmProcess:
        """An idle one of this zygote's, the one used last, or a new one. Raises WorldFault."""
        found, useless = None, []
        with self._lock:
            while self._idle and found is None:
                process = self._idle.pop()
                if process.zygote is zygote and process.link.quiet:
                    found = process
                else:
                    useless.append(process)
        for process in useless:
            process.end()
        taken = found or WarmProcess(zygote, self._kind)
        taken.uses += 1
        return taken

    def give_back(self, process: WarmProcess) -> None:
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
