"""The sandbox: a source of confined REPL processes."""

import socket
import threading
from typing import Literal

from tasks.core.interfaces.world import WorldFault
from tasks.core.worlds.sandbox.fork_server import ForkServer
from tasks.core.worlds.sandbox.interface import SandboxLimits
from tasks.core.worlds.sandbox.repl import Repl

START_OF_TIME = 1_684_411_200.0
"""The frozen clock's default, POSIX seconds: 18 May 2023, 12:00 UTC."""

Confinement = Literal["auto", "seccomp", "audit"]


class Sandbox:
    """Starts REPL processes. Thread-safe; nothing runs before the first `start`.

    A REPL process holds one socket and no other descriptor, an empty environment, and limits on CPU, memory and
    output. On Linux (x86-64, aarch64) a seccomp filter leaves it no system call to open, connect, start, signal or
    trace anything, and as root it first becomes nobody. Elsewhere (macOS) `confinement` "auto" falls back to resource
    limits and a Python audit hook, which a determined attacker can evade; "seccomp" refuses to run there instead.

    The agent's clock stands still (`time.sleep` moves it on without waiting), its time zone is UTC, and `random`,
    `os.urandom` and string hashes follow from the seed.
    """

    def __init__(self, limits: SandboxLimits | None = None, confinement: Confinement = "auto") -> None:
        self.limits = limits or SandboxLimits()
        self._confinement = confinement
        self._server: ForkServer | None = None
        self._lock = threading.Lock()
        self._closed = False

    def start(self, seed: int = 0, clock: float = START_OF_TIME) -> Repl:
        """A fresh REPL; `seed` (63 bits) feeds its randomness, `clock` (POSIX seconds) is its frozen time.

        Raises WorldFault when the sandbox can't start a process; the next call tries with a new zygote.
        """
        server = self._live_server()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                pid = server.fork(theirs, seed, clock)
        except WorldFault:
            ours.close()
            self._drop(server)
            raise
        return Repl(ours, pid, server, self.limits)

    def close(self) -> None:
        """End every process of the sandbox. Idempotent; REPLs that are left raise WorldFault when used."""
        with self._lock:
            self._closed = True
            server, self._server = self._server, None
        if server is not None:
            server.close()

    def _live_server(self) -> ForkServer:
        with self._lock:
            if self._closed:
                raise WorldFault("the sandbox is closed")
            if self._server is None:
                self._server = ForkServer(self.limits, self._confinement)
            return self._server

    def _drop(self, server: ForkServer) -> None:
        with self._lock:
            if self._server is server:
                self._server = None
        server.close()
