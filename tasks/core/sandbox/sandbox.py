"""The sandbox: a source of confined REPL processes."""

import dataclasses
import os
import sys
from typing import Literal

from tasks.core.confinement.confined_process import ConfinedProcess
from tasks.core.confinement.live_zygote import LiveZygote
from tasks.core.confinement.zygote_process import ZygoteProcess
from tasks.core.sandbox.interface import SandboxLimits
from tasks.core.sandbox.repl import Repl

START_OF_TIME = 1_684_411_200.0
"""Default of the frozen clock, POSIX seconds: 18 May 2023, 12:00 UTC."""

Confinement = Literal["auto", "seccomp", "audit"]

# -S and -P hide site-packages and the working directory; -I would ignore PYTHONHASHSEED.
_FLAGS = ("-S", "-s", "-P")
_MODULE = "tasks.core.sandbox.inside.zygote"
_START_SECONDS = 60.0
_KEPT_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME")


class Sandbox:
    """A starter of REPL processes. Thread-safe; nothing runs before the first `start`.

    A REPL process has one socket and no other descriptor, an empty environment, and limits on CPU, memory and output.
    On Linux (x86-64, aarch64) a seccomp filter denies it every system call to open, connect, start, signal or trace
    anything; if we are root, it first becomes nobody. Elsewhere (macOS) `confinement` "auto" falls back to resource
    limits and a Python audit hook, which a determined attacker can evade; "seccomp" refuses to run there.

    The agent's clock stands still (`time.sleep` advances it without waiting), its time zone is UTC, and `random`,
    `os.urandom` and string hashes are determined by the seed.
    """

    def __init__(self, limits: SandboxLimits | None = None, confinement: Confinement = "auto") -> None:
        self.limits = limits or SandboxLimits()
        self._confinement = confinement
        self._zygotes = LiveZygote[ZygoteProcess]()

    def start(self, seed: int = 0, clock: float = START_OF_TIME) -> Repl:
        """Start a REPL; `seed` (63 bits) seeds its randomness, `clock` (POSIX seconds) is its frozen time.

        Raises WorldFault when the sandbox cannot start a process; the next call tries a new zygote.
        """
        zygote = self._zygotes.get(self._start_zygote)
        process = ConfinedProcess(zygote.forks, "repl", self.limits.request_bytes, seed=seed, clock=clock)
        return Repl(process, self.limits)

    def close(self) -> None:
        """End every process of the sandbox. Idempotent; REPLs still in use raise WorldFault."""
        self._zygotes.close()

    def _start_zygote(self) -> ZygoteProcess:
        settings = {**dataclasses.asdict(self.limits), "confinement": self._confinement}
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        environment = {**kept, "PYTHONHASHSEED": "0"}
        zygote = ZygoteProcess("the sandbox's zygote", [sys.executable, *_FLAGS], _MODULE, settings, environment)
        zygote.ready(_START_SECONDS)
        return zygote
