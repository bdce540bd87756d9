"""The pool of JVMs in which episodes run, each with its own process; a JVM that dies is replaced."""

import contextlib
import os
import signal
import threading
from pathlib import Path
from typing import Any

from tasks.core.confinement.fork_server import LAST_SECONDS, ForkedProcess, verdict_on_death
from tasks.core.confinement.inside.frames import encode
from tasks.core.confinement.link import LinkBroken, LinkTimeout
from tasks.core.confinement.live_zygote import LiveZygote
from tasks.core.confinement.zygote_process import ZygoteProcess
from tasks.core.interfaces.world import WorldFault
from tasks.core.processes.usable_cores import usable_cores

EPISODES_PER_JVM = 12
"""More episodes do not fit into the heap: each takes about 10 MB."""
_HEAP_MIB = 224
_MODULE = "tasks.core.worlds.scienceworld.inside.zygote"
_START_SECONDS, _STEP_SECONDS, _END_SECONDS = 120.0, 120.0, 5.0


class SimulatorProcess(ForkedProcess):
    """A JVM and the process that talks to it. Thread-safe: concurrent requests wait for each other."""

    def __init__(self, zygote: ZygoteProcess, heap_mib: int = _HEAP_MIB) -> None:
        """Start the process. Raises WorldFault."""
        super().__init__(zygote.forks, "simulators", heap_mib=heap_mib)
        self._lock = threading.Lock()
        self.broken = False
        self.episodes = 0
        """Live episodes, counted by the pool."""
        self.jvm_pid = 0  # 0 until known, and after its end
        started = self._receive(_START_SECONDS)
        self.jvm_pid = int(started["jvm_pid"])
        self.alone = bool(started["alone"])
        """Whether the process has no network."""

    def ask(self, request: dict[str, Any], seconds: float = _STEP_SECONDS) -> dict[str, Any]:
        """Return the answer to a request (`inside.simulators`). Raises WorldFault; the process is then unusable."""
        with self._lock:
            if self.broken:
                raise WorldFault("ScienceWorld's JVM exited, which ended all its episodes")
            try:
                self.link.send_frame(encode(request))
            except LinkBroken as error:
                raise self._ended(error) from error
            return self._receive(seconds)

    def end(self, patience: float = _END_SECONDS) -> int | None:
        """End the process. Returns its exit status or KILLED; None if nobody knows it. Idempotent, never raises."""
        self.broken = True
        jvm, self.jvm_pid = self.jvm_pid, 0
        if jvm:  # a JVM that hangs would not notice that its process has ended
            with contextlib.suppress(ProcessLookupError):
                os.kill(jvm, signal.SIGKILL)
        return super().end(patience)

    def _receive(self, seconds: float) -> dict[str, Any]:
        try:
            message = self.link.receive(seconds)
        except LinkBroken as error:
            raise self._ended(error) from error
        if "fault" in message:
            self.end()
            raise WorldFault(f"ScienceWorld's JVM failed: {message['fault']}")
        return message

    def _ended(self, error: LinkBroken) -> Exception:
        status = self.end(LAST_SECONDS)
        if isinstance(error, LinkTimeout):
            return WorldFault(f"ScienceWorld's JVM {error}")
        return verdict_on_death(status, "process of ScienceWorld's JVM", trusted=True)


class SimulatorPool:
    """A pool that lends JVMs to episodes. Thread-safe; nothing runs before the first episode.

    There are as many JVMs as cores, and more when each has `EPISODES_PER_JVM`. A broken JVM is replaced when the next
    episode opens; its own episodes end with a WorldFault, no others are affected.
    """

    def __init__(self, python: Path, java: Path) -> None:
        self._python, self._java = python, java
        self._lock = threading.RLock()
        self._zygotes = LiveZygote[ZygoteProcess]()
        self._processes: list[SimulatorProcess] = []

    def take(self) -> SimulatorProcess:
        """Return the JVM with the fewest episodes, and count one more for it. Raises WorldFault."""
        with self._lock:
            self._processes = [process for process in self._processes if not process.broken]
            idlest = min(self._processes, key=lambda process: process.episodes, default=None)
            room = usable_cores() if idlest is None or idlest.episodes < EPISODES_PER_JVM else len(self._processes) + 1
            if idlest is None or (idlest.episodes and len(self._processes) < room):
                idlest = self.start()
                self._processes.append(idlest)
            idlest.episodes += 1
            return idlest

    def give_back(self, process: SimulatorProcess) -> None:
        """Note that one of the process's episodes has ended."""
        with self._lock:
            process.episodes -= 1

    def start(self, heap_mib: int = _HEAP_MIB) -> SimulatorProcess:
        """Start a JVM that the pool does not lend. Raises WorldFault."""
        return SimulatorProcess(self._zygotes.get(self._start_zygote), heap_mib)

    @property
    def processes(self) -> tuple[SimulatorProcess, ...]:
        """The processes that serve episodes."""
        with self._lock:
            return tuple(self._processes)

    def close(self) -> None:
        """End all processes. Idempotent; episodes still in use raise WorldFault."""
        with self._lock:
            processes, self._processes = self._processes, []
        for process in processes:
            process.end()
        self._zygotes.close()

    def _start_zygote(self) -> ZygoteProcess:
        settings = {"java": str(self._java)}
        command = [str(self._python), "-P", "-s"]
        zygote = ZygoteProcess("ScienceWorld's zygote", command, _MODULE, settings, {"PATH": "/usr/bin:/bin"})
        zygote.ready(_START_SECONDS)
        return zygote
