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
