"""A confined process as its owner sees it: messages both ways, time limits, and a verdict when it dies."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tasks.core.confinement.fork_server import (
    LAST_SECONDS,
    ForkedProcess,
    ForkServer,
    LinkBroken,
    LinkTimeout,
    ProcessDied,
    verdict_on_death,
)
from tasks.core.confinement.inside.frames import MalformedMessage, OversizedMessage, encode
from tasks.core.interfaces.world import ExecutionTimeout, WorldFault

_SHORTEST_WAIT = 0.005
_READY_SECONDS = 60.0


class ConfinedProcess(ForkedProcess):
    """A process that runs an agent's code and exchanges JSON over one socket.

    Its first message is {"ready": confinement}. Not thread-safe. A caller that gets an error from it must close it.
    """

    def __init__(self, forks: ForkServer, kind: str, message_bytes: int, **details: Any) -> None:
        """Fork the process. Raises WorldFault. `message_bytes` is the largest message to accept from it."""
        super().__init__(forks, kind, **details)
        self._message_bytes = message_bytes
        self._confinement = ""
        self._watch = _Watch(self.pid)

    @property
    def confinement(self) -> str:
        """ "seccomp" or "audit" (see `inside.jail`). Waits until the process is ready. Raises WorldFault."""
        self._await_ready()
        return self._confinement

    @contextmanager
    def running(self, wall_seconds: float, cpu_seconds: float) -> Iterator[None]:
        """Run with these limits until the end of the block; an error in it ends the process.

        Raises WorldFault when the process is closed or could not be confined.
        """
        try:
            self._await_ready()
            self._watch.start(wall_seconds, cpu_seconds)
            yield
        except BaseException:
            self.end()
            raise

    @contextmanager
    def off_the_clock(self) -> Iterator[None]:
        """Count the time until the end of the block not towards the run."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self._watch.wall_start += time.monotonic() - begin

    def send(self, message: dict[str, Any]) -> None:
        """Send a message. Raises WorldFault if it is not JSON, and whatever `receive` raises."""
        try:
            frame = encode(message)
        except (TypeError, ValueError, RecursionError) as error:
            raise WorldFault(f"the world answered with a value that is not JSON: {error}") from error
        try:
            self.link.send_frame(frame, seconds=max(self._watch.wall_left(), _SHORTEST_WAIT))
        except LinkTimeout:
            raise ExecutionTimeout("the code did not take an answer in time") from None
        except LinkBroken:
            raise self._death() from None

    def receive(self) -> dict[str, Any]:
        """Return the next message. Raises ExecutionTimeout, ProcessDied or WorldFault."""
        try:
            return self.link.receive_hostile(self._message_bytes, self._watch.next_look)
        except OversizedMessage as error:
            raise ProcessDied(f"the process sent {error}") from error
        except MalformedMessage as error:
            raise ProcessDied(f"the process sent a malformed message: {error}") from error
        except LinkBroken:
            raise self._death() from None

    def _await_ready(self) -> None:
        if self.closed:
            raise WorldFault("the confined process is closed")
        if self._confinement:
            return
        self._watch.start(_READY_SECONDS, _READY_SECONDS)
        try:
            message = self.receive()
        except ExecutionTimeout as error:
            raise WorldFault(f"a confined process failed to start: {error}") from error
        if "fault" in message:
            raise WorldFault(f"a process could not be confined: {message['fault']}")
        self._confinement = str(message["ready"])

    def _death(self) -> Exception:
        """End the process and return the error that says whose fault its death was."""
        if self.closed:
            return WorldFault("the confined process was closed while it ran")
        return verdict_on_death(self.end(LAST_SECONDS), "sandboxed process")


class _Watch:
    """The CPU and wall clocks of the current run."""

    def __init__(self, pid: int) -> None:
        self._clock = (~pid << 3) | 2  # CLOCK_PROCESS_CPUTIME_ID of the other process (clock_getcpuclockid(3))
        self._wall_limit = self._cpu_limit = self.wall_start = self._cpu_start = 0.0

    def start(self, wall_limit: float, cpu_limit: float) -> None:
        """Begin a run with these limits, in seconds."""
        self._wall_limit, self._cpu_limit = wall_limit, cpu_limit
        self.wall_start = time.monotonic()
        self._cpu_start = self.cpu_time()

    def wall_left(self) -> float:
        return self.wall_start + self._wall_limit - time.monotonic()

    def next_look(self) -> float:
        """Return the seconds until a limit could be reached. Raises ExecutionTimeout when a limit is reached."""
        wall_left = self.wall_left()
        if wall_left <= 0:
            raise ExecutionTimeout(f"the code ran for more than {self._wall_limit} s")
        cpu_left = self._cpu_limit - (self._wall_limit - wall_left)
        if cpu_left <= 0:  # CPU time may lag behind wall time: only now is it worth a system call
            cpu_left = self._cpu_limit - (self.cpu_time() - self._cpu_start)
        if cpu_left <= 0:
            raise ExecutionTimeout(f"the code used more than {self._cpu_limit} s of CPU time")
        return min(wall_left, max(cpu_left, _SHORTEST_WAIT))

    def cpu_time(self) -> float:
        """Return the CPU seconds that the process has used."""
        if sys.platform != "linux":
            return time.monotonic()
        try:
            return time.clock_gettime(self._clock)
        except OSError:  # the process has ended; its closed socket will show it
            return self._cpu_start
