"""A process that a fork server forked, at the other end of a link."""

import contextlib
import socket
from typing import Any

from tasks.core.confinement.fork_server import ForkServer
from tasks.core.confinement.link import Link
from tasks.core.interfaces.world import WorldFault


class ForkedProcess:
    """A forked process and its link. Not thread-safe."""

    def __init__(self, forks: ForkServer, kind: str, **details: Any) -> None:
        """Fork the process. Raises WorldFault."""
        self.peak_memory_bytes: int | None = None
        """Largest resident memory; known once the process has ended."""
        self._forks = forks
        ours, theirs = socket.socketpair()
        self.link = Link(ours)
        try:
            with theirs:
                self.pid: int | None = forks.fork(kind, [theirs.fileno()], **details)
        except WorldFault:
            self.link.close()
            raise

    def end(self, patience: float = 0.0) -> int | None:
        """End the process.

        Returns its exit status or KILLED; None if its fork server is gone. Idempotent, never raises.
        """
        self.link.close()
        pid, self.pid = self.pid, None
        if pid is not None:
            with contextlib.suppress(WorldFault):
                status, self.peak_memory_bytes = self._forks.end(pid, patience)
                return status
        return None
