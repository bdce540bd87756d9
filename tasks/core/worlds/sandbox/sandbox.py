"""The sandbox: a source of confined REPL processes."""

import dataclasses
import os
import socket
import sys
import threading
from typing import Literal

from tasks.core.interfaces.world import WorldFault
from tasks.core.worlds.confinement.confined_process import ConfinedProcess
from tasks.core.worlds.confinement.link import Link
from tasks.core.worlds.confinement.zygote_process import ZygoteProcess
from tasks.core.worlds.sandbox.interface import SandboxLimits
from tasks.core.worlds.sandbox.repl import Repl

START_OF_TIME = 1_684_411_200.0
"""The frozen clock's default, POSIX seconds: 18 May 2023, 12:00 UTC."""

Confinement = Literal["auto", "seccomp", "audit"]

# -S and -P keep site-packages and the working directory away; -I would ignore PYTHONHASHSEED.
_FLAGS = ("-S", "-s", "-P")
_MODULE = "tasks.core.worlds.sandbox.inside.zygote"
_KEPT_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME")


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
        self._zygote: ZygoteProcess | None = None
        self._lock = threading.Lock()
        self._closed = False

    def start(self, seed: int = 0, clock: float = START_OF_TIME) -> Repl:
        """A fresh REPL; `seed` (63 bits) feeds its randomness, `clock` (POSIX seconds) is its frozen time.

        Raises WorldFault when the sandbox can't start a process; the next call tries with a new zygote.
        """
        zygote = self._live_zygote()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                pid = zygote.forks.fork("repl", [theirs.fileno()], seed=seed, clock=clock)
        except WorldFault:
            ours.close()
            self._drop(zygote)
            raise
        return Repl(ConfinedProcess(Link(ours), pid, zygote.forks, self.limits.request_bytes), self.limits)

    def close(self) -> None:
        """End every process of the sandbox. Idempotent; REPLs that are left raise WorldFault when used."""
        with self._lock:
            self._closed = True
            zygote, self._zygote = self._zygote, None
        if zygote is not None:
            zygote.close()

    def _live_zygote(self) -> ZygoteProcess:
        with self._lock:
            if self._closed:
                raise WorldFault("the sandbox is closed")
            if self._zygote is None:
                self._zygote = _start_zygote(self.limits, self._confinement)
            return self._zygote

    def _drop(self, zygote: ZygoteProcess) -> None:
        with self._lock:
            if self._zygote is zygote:
                self._zygote = None
        zygote.close()


def _start_zygote(limits: SandboxLimits, confinement: Confinement) -> ZygoteProcess:
    settings = {**dataclasses.asdict(limits), "confinement": confinement}
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    environment = {**kept, "PYTHONHASHSEED": "0"}
    return ZygoteProcess("the sandbox's zygote", [sys.executable, *_FLAGS], _MODULE, settings, environment)
