"""The pipeline's view of a process that forks others (see `inside.forking`)."""

import logging
import socket
import threading
from collections.abc import Sequence
from typing import Any

from tasks.core.confinement.link import Link, LinkBroken
from tasks.core.interfaces.world import WorldFault

_ANSWER_SECONDS = 60.0
_log = logging.getLogger(__name__)


class ForkServer:
    """Asks for forks and ends of processes. Thread-safe. `subject` names it in errors."""

    def __init__(self, end: socket.socket, subject: str) -> None:
        self._link = Link(end)
        self._lock = threading.Lock()
        self.subject = subject
        self.broken = False

    def fork(self, kind: str, descriptors: Sequence[int], **details: Any) -> int:
        """Start a process that has these descriptors; returns its pid. Raises WorldFault."""
        return int(self._ask({"fork": kind, **details}, descriptors)["pid"])

    def end(self, pid: int, patience: float = 0.0) -> tuple[int, int]:
        """Kill the process if it lives after `patience` seconds; returns what `end_child` does. Raises WorldFault."""
        answer = self._ask({"end": pid, "patience": patience}, ())
        return int(answer["status"]), int(answer["peak"])

    def started(self, seconds: float, frame: bytes = b"") -> dict[str, Any]:
        """Send what the process needs to start, wait until it is ready; what it then says. Raises WorldFault."""
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
        """Hang up; the process then ends with all that it forked. Idempotent."""
        self._link.close()

    def _ask(self, request: dict[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
        with self._lock:
            try:
                self._link.send(request, descriptors)
                return self._link.receive(_ANSWER_SECONDS)
            except LinkBroken as error:
                self.broken = True
                self._link.close()  # an answer that comes late must not be taken for the next one's
                raise WorldFault(f"{self.subject} {error}") from error
