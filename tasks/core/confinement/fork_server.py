"""The pipeline's socket to a process, the forking of confined processes over one, and whose fault a death was."""

import contextlib
import json
import logging
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from tasks.core.confinement.inside.forking import KILLED
from tasks.core.confinement.inside.frames import checked_size, decode_hostile, encode
from tasks.core.interfaces.world import ExecutionTimeout, WorldFault


class LinkBroken(Exception):  # noqa: N818
    """The process at the other end is gone or does not answer."""


class LinkTimeout(LinkBroken):
    """The process at the other end did not answer in time."""


Patience = Callable[[], float]
"""Returns the seconds to wait for the next bytes; called again when they have passed, and raises to give up."""


class Link:
    """JSON frames over a socket, one direction at a time. Not thread-safe."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, message: dict[str, Any], descriptors: Sequence[int] = (), seconds: float = 30.0) -> None:
        """Send one message. Raises LinkBroken."""
        self.send_frame(encode(message), descriptors, seconds)

    def send_frame(self, frame: bytes, descriptors: Sequence[int] = (), seconds: float = 30.0) -> None:
        """Send a frame unchanged. Raises LinkBroken."""
        try:
            self._end.settimeout(seconds)
            sent = socket.send_fds(self._end, [frame], list(descriptors)) if descriptors else 0
            self._end.sendall(frame[sent:])
        except TimeoutError as error:
            raise LinkTimeout(f"accepted no message for {seconds:g} s") from error
        except OSError as error:
            raise LinkBroken(f"is gone ({error})") from error

    def receive(self, seconds: float) -> dict[str, Any]:
        """Return the next message. Raises LinkBroken; LinkTimeout if it is incomplete after `seconds`."""
        message: dict[str, Any] = json.loads(self.receive_frame(seconds)[4:])
        return message

    def receive_frame(self, seconds: float) -> bytes:
        """Return the next message with its length prefix, to be passed on unread."""
        patience = _until(time.monotonic() + seconds, seconds)
        header = self._exactly(4, patience)
        return header + self._exactly(int.from_bytes(header, "big"), patience)

    def receive_hostile(self, most_bytes: int, patience: Patience) -> dict[str, Any]:
        """Return the next message of an untrusted peer. Raises LinkBroken, MalformedMessage, OversizedMessage."""
        size = checked_size(self._exactly(4, patience), most_bytes)
        return decode_hostile(self._exactly(size, patience))

    @property
    def quiet(self) -> bool:
        """Whether nothing has arrived unasked, not even the end of the connection."""
        return not select.select([self._end], [], [], 0)[0]

    def close(self) -> None:
        """Close the socket. Idempotent."""
        self._end.close()

    def _exactly(self, size: int, patience: Patience) -> bytes:
        parts, left = [], size
        while left:
            try:
                self._end.settimeout(patience())
                part = self._end.recv(min(left, 2**20))
            except TimeoutError:
                continue
            except OSError as error:
                raise LinkBroken(f"is gone ({error})") from error
            if not part:
                raise LinkBroken("is gone")
            parts.append(part)
            left -= len(part)
        return b"".join(parts)


def _until(end: float, seconds: float) -> Patience:
    def left() -> float:
        rest = end - time.monotonic()
        if rest <= 0:
            raise LinkTimeout(f"did not answer in {seconds:g} s")
        return rest

    return left


LAST_SECONDS = 0.25
"""Seconds that a process may take to exit after its socket has closed."""
_FAULTS_OF_OTHERS = {signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT}
"""Signals that confined code cannot send: memory ran out, or someone killed the process."""


class ProcessDied(ExecutionTimeout):
    """The agent's code ended its own process: os._exit, a crash, a broken protocol. The policy is at fault."""


def verdict_on_death(status: int | None, name: str, trusted: bool = False) -> ExecutionTimeout | WorldFault:
    """Return the error to raise for a process that hung up and ended with `status` (see `reaping.end_child`).

    `status` None means that its fork server is gone too. `name` names the process in the message. A `trusted` process
    runs no agent's code, so its death is the world's fault.
    """
    if status is None:
        return WorldFault(f"the {name} and the process that forked it are gone")
    if status == KILLED:
        return _at_fault(name, "closed its connection", trusted)
    if not os.WIFSIGNALED(status):
        return _at_fault(name, f"ended with exit code {os.waitstatus_to_exitcode(status)}", trusted)
    number = os.WTERMSIG(status)
    if number == signal.SIGXCPU:
        return ExecutionTimeout(f"the {name} used all of its CPU time")
    if number in _FAULTS_OF_OTHERS or trusted:
        return WorldFault(f"the {name} was killed from outside (signal {number}); is memory short?")
    return _at_fault(name, f"crashed (signal {number})", trusted)


def _at_fault(name: str, end: str, trusted: bool) -> ExecutionTimeout | WorldFault:
    return WorldFault(f"the {name} {end}") if trusted else ProcessDied(f"the code broke its {name}, which {end}")


_ANSWER_SECONDS = 60.0
_log = logging.getLogger(__name__)


class ForkServer:
    """A client that asks the process to fork and to end children.

    Thread-safe. `subject` names the process in errors.
    """

    def __init__(self, end: socket.socket, subject: str) -> None:
        self._link = Link(end)
        self._lock = threading.Lock()
        self.subject = subject
        self.broken = False

    def fork(self, kind: str, descriptors: Sequence[int], **details: Any) -> int:
        """Fork a process that inherits these descriptors. Returns its pid. Raises WorldFault."""
        return int(self._ask({"fork": kind, **details}, descriptors)["pid"])

    def end(self, pid: int, patience: float = 0.0) -> tuple[int, int]:
        """Kill the process if it is still alive after `patience` seconds.

        Returns what `end_child` returns. Raises WorldFault.
        """
        answer = self._ask({"end": pid, "patience": patience}, ())
        return int(answer["status"]), int(answer["peak"])

    def started(self, seconds: float, frame: bytes = b"") -> dict[str, Any]:
        """Send `frame`, wait until the process is ready and return its message. Raises WorldFault."""
        try:
            with self._lock:
                self._link.send_frame(frame)
                message = self._link.receive(seconds)
        except LinkBroken as error:
            raise WorldFault(f"{self.subject} {error} while it started") from error
        if "fault" in message:
            raise WorldFault(f"{self.subject} could not start: {message['fault']}")
        if message.get("warning"):
            _log.warning("%s: %s", self.subject, message["warning"])
        return message

    def close(self) -> None:
        """Close the connection; the process then ends with everything it forked. Idempotent."""
        self._link.close()

    def _ask(self, request: dict[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
        with self._lock:
            try:
                self._link.send(request, descriptors)
                return self._link.receive(_ANSWER_SECONDS)
            except LinkBroken as error:
                self.broken = True
                self._link.close()  # a late answer must not be taken for the answer to the next request
                raise WorldFault(f"{self.subject} {error}") from error


class ForkedProcess:
    """A forked process and its link. Not thread-safe."""

    def __init__(self, forks: ForkServer, kind: str, **details: Any) -> None:
        """Fork the process. Raises WorldFault."""
        self.peak_memory_bytes: int | None = None
        """Largest resident memory; known once the process has ended."""
        self._forks, self.closed = forks, False
        ours, theirs = socket.socketpair()
        self.link = Link(ours)
        try:
            with theirs:
                self.pid = forks.fork(kind, [theirs.fileno()], **details)
        except WorldFault:
            self.link.close()
            raise

    def end(self, patience: float = 0.0) -> int | None:
        """End the process.

        Returns its exit status or KILLED; None if its fork server is gone. Idempotent, never raises.
        """
        was_closed, self.closed = self.closed, True
        self.link.close()
        if not was_closed:
            with contextlib.suppress(WorldFault):
                status, self.peak_memory_bytes = self._forks.end(self.pid, patience)
                return status
        return None
