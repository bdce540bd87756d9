"""A pool of confined processes: one zygote, and the processes of its engine that serve one episode after another."""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from tasks.core.confinement.fork_server import ForkedProcess
from tasks.core.confinement.inside.frames import encode
from tasks.core.confinement.link import LinkBroken
from tasks.core.confinement.zygote import Zygote
from tasks.core.interfaces.world import WorldFault


class Keep(NamedTuple):
    """Limits beyond which an idle process of a kind is ended instead of kept."""

    most_idle: int
    most_uses: int
    most_cpu_seconds: float


class WarmProcess(ForkedProcess):
    """A reusable process that runs no agent's code. Not thread-safe: one episode or evaluation uses it at a time."""

    def __init__(self, zygote: Zygote, kind: str) -> None:
        """Fork a process from the zygote's engine. Raises WorldFault."""
        super().__init__(zygote.engine, kind)
        self.zygote, self.kind = zygote, kind
        self.uses = 0
        self.cpu_seconds = 0.0
        """CPU seconds used, as last reported by the process."""


class ProcessPool:
    """A thread-safe holder of one zygote and its idle processes. Nothing runs before the first request.

    A zygote that broke is replaced; processes forked by it end with a WorldFault of their own.
    """

    def __init__(self, start: Callable[[bytes], Zygote], **kept: Keep) -> None:
        """Take a function that starts a ready zygote on a frame for its engine, and the kinds that are kept."""
        self._start, self._kept = start, kept
        self._lock, self._start_lock = threading.Lock(), threading.Lock()
        self._zygote: Zygote | None = None
        self._idle: list[WarmProcess] = []
        self._closed = False

    def zygote(self, frame: bytes = b"") -> Zygote:
        """Return the running zygote, or start one. Raises WorldFault, also when the pool is closed."""
        with self._start_lock:
            with self._lock:
                if self._closed:
                    raise WorldFault("the pool is closed")
                zygote = self._zygote
            if zygote is not None and zygote.alive:
                return zygote
            if zygote is not None:
                zygote.close()
            fresh = self._start(frame)
            with self._lock:
                self._zygote, closed = fresh, self._closed
            if closed:
                fresh.close()
                raise WorldFault("the pool is closed")
            return fresh

    def take(self, kind: str, frame: bytes = b"") -> WarmProcess:
        """Return the zygote's most recently used idle process of a kind, or start one. Raises WorldFault."""
        zygote = self.zygote(frame)
        with self._lock:
            usable = [one for one in self._idle if one.zygote is zygote and one.link.quiet]
            useless = [one for one in self._idle if one not in usable]
            fitting = [one for one in usable if one.kind == kind]
            self._idle = [one for one in usable if not fitting or one is not fitting[-1]]
        for process in useless:
            process.end()
        taken = fitting[-1] if fitting else WarmProcess(zygote, kind)
        taken.uses += 1
        return taken

    def give_back(self, process: WarmProcess) -> None:
        """Keep the process for its next user if the limits allow. It must have answered every request."""
        keep = self._kept[process.kind]
        worn = process.uses >= keep.most_uses or process.cpu_seconds >= keep.most_cpu_seconds
        with self._lock:
            idle = sum(one.kind == process.kind for one in self._idle)
            if kept := not self._closed and not worn and idle < keep.most_idle:
                self._idle.append(process)
        if not kept:
            process.end()

    def ask(self, kind: str, question: dict[str, Any] | bytes, seconds: float, subject: str, frame: bytes = b"") -> Any:
        """Return what a process of this kind answers. Raises WorldFault, with `subject` as what went wrong."""
        process = self.take(kind, frame)
        try:
            process.link.send_frame(question if isinstance(question, bytes) else encode(question), seconds=seconds)
            answer = process.link.receive(seconds)
            if "fault" in answer:
                raise WorldFault(f"{subject} failed: {answer['fault']}")
        except LinkBroken as error:
            process.end()
            raise WorldFault(f"{subject} {error}") from error
        except BaseException:
            process.end()
            raise
        process.cpu_seconds = answer.get("cpu_seconds", process.cpu_seconds)
        self.give_back(process)
        return answer

    @property
    def pids(self) -> list[int]:
        """Process ids that live on between episodes: the zygote, its engine, idle processes in order of their kinds."""
        with self._lock:
            zygote, idle = self._zygote, list(self._idle)
        kinds = list(self._kept)
        idle.sort(key=lambda one: kinds.index(one.kind))
        return [*(zygote.pids if zygote is not None else ()), *(one.pid for one in idle if one.pid is not None)]

    def close(self) -> None:
        """End all processes; those in use are ended when given back, and raise WorldFault before. Idempotent."""
        with self._lock:
            self._closed = True
            zygote, self._zygote, idle, self._idle = self._zygote, None, self._idle, []
        if zygote is not None:
            zygote.close()
        for process in idle:
            process.end()
