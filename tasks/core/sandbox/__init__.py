"""The process sandbox in which agents' Python code runs.

`Sandbox(limits).start(seed) -> Repl`; `Repl.run(code, call_api) -> Execution`. The caller keeps the world's state:
sandboxed code reaches it only through `call_api`, one JSON value at a time.
"""

import dataclasses
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tasks.core.confinement.confined_process import ConfinedProcess
from tasks.core.confinement.fork_server import ProcessDied
from tasks.core.confinement.process_pool import Confinement, ProcessPool, Zygote
from tasks.core.interfaces.world import ExecutionTimeout, WorldFault

CallApi = Callable[[str, str, list[Any], dict[str, Any]], Any]
"""`call_api(app, name, args, kwargs)` returns a JSON value or raises `ApiError`; the agent chooses all arguments."""


_BYTES_PER_CHAR = 6  # of an escaped control character
_FRAME_BYTES = 256


class ApiError(Exception):
    """An API answered with an error. It is raised again in the agent's code, which may catch it as `ApiError`."""


@dataclass(frozen=True)
class SandboxLimits:
    """Limits of one REPL process. A process that exceeds a time or call limit is killed."""

    cpu_seconds_per_run: float = 2.0
    """CPU seconds of one `run`, exact to about 10 ms. Where the system cannot measure them (macOS), wall time
    counts."""
    cpu_seconds_per_repl: int = 60
    """CPU seconds of the whole process, enforced by the kernel."""
    wall_seconds_per_run: float = 30.0
    """Wall seconds of one `run`, not counting `call_api`. Only a backstop: on a busy machine CPU time is fairer."""
    memory_bytes: int = 128 * 2**20
    """Address space that the agent's code may add to the interpreter's own; beyond it the code gets MemoryError."""
    api_calls_per_run: int = 10_000
    output_chars: int = 20_000
    """Characters of printed text kept per run; the rest is dropped as it is printed."""
    error_chars: int = 500
    """Characters of an error's last line that are kept."""
    request_bytes: int = 2**20
    """Largest message from the process, as JSON. An API call with larger arguments raises in the agent's code."""

    def __post_init__(self) -> None:
        """Check the limits. Raises ValueError when a result within the output limits could exceed `request_bytes`."""
        largest = _BYTES_PER_CHAR * (self.output_chars + 2 * self.error_chars) + _FRAME_BYTES
        if self.request_bytes < largest:
            raise ValueError(f"request_bytes must be at least {largest} for these output_chars and error_chars")


@dataclass(frozen=True)
class Execution:
    """Outcome of one `run`."""

    output: str
    """Printed text; after an error also `line N: <source>` and the error's last line, e.g. `NameError: ...`."""
    failed: bool
    error: str = ""
    """The error's last line, or empty."""


_ADDRESS = re.compile(r" at 0x[0-9a-f]{6,16}\b")


class Repl:
    """A process that keeps one namespace between runs. Not thread-safe; several REPLs may run in different threads.

    The code sees `apis.<app>.<name>(...)`, `ApiError` and the preloaded standard library modules.
    """

    def __init__(self, process: ConfinedProcess, limits: SandboxLimits) -> None:
        self.process = process
        self._limits = limits
        self._turn = 0

    @property
    def pid(self) -> int:
        """Process id; the process may have ended already."""
        return self.process.pid

    def run(self, code: str, call_api: CallApi) -> Execution:
        """Run one block of the agent's code; `call_api` answers its API calls in this thread.

        Raises ExecutionTimeout when the code exceeded a limit and its process was killed (ProcessDied when the code
        ended the process itself), and WorldFault when the sandbox broke or `call_api` raised anything except ApiError.
        After any of these the REPL is closed.
        """
        with self.process.running(self._limits.wall_seconds_per_run, self._limits.cpu_seconds_per_run):
            self._turn += 1
            self.process.send({"run": self._turn, "code": code})
            for _ in range(self._limits.api_calls_per_run + 1):
                message = self.process.receive()
                if "done" in message:
                    return _execution(message, self._turn, self._limits)
                with self.process.off_the_clock():
                    answer = _answer(call_api, message)
                self.process.send(answer)
            raise ExecutionTimeout(f"the code made more than {self._limits.api_calls_per_run} API calls in one run")

    def close(self) -> None:
        """End the process. Idempotent, never raises."""
        self.process.end()


def _answer(call_api: CallApi, message: dict[str, Any]) -> dict[str, Any]:
    match message:
        case {"call": [str(app), str(name), list(args), dict(kwargs)]}:
            try:
                return {"value": call_api(app, name, args, kwargs)}
            except ApiError as error:
                return {"error": str(error)}
            except (WorldFault, ExecutionTimeout):
                raise
            except Exception as error:
                raise WorldFault(f"apis.{app}.{name} failed: {type(error).__name__}: {error}") from error
    raise ProcessDied("the process sent a call of the wrong shape")


def _execution(message: dict[str, Any], turn: int, limits: SandboxLimits) -> Execution:
    match message:
        case {"done": int(n), "printed": str(printed), "dropped": int(dropped), "line": str(line), "error": str(error)}:
            if n != turn:
                raise ProcessDied("the process answered another run")
        case _:
            raise ProcessDied("the process sent a result of the wrong shape")
    parts = [printed[: limits.output_chars]]
    if dropped > 0:
        parts.append(f"... ({dropped} more characters)")
    parts += [line[: limits.error_chars], error[: limits.error_chars]]
    # Addresses differ between runs and machines and mean nothing to the agent.
    text = _ADDRESS.sub(" at 0x0", _joined(parts))
    return Execution(text, bool(error), error[: limits.error_chars])


def _joined(parts: list[str]) -> str:
    text = ""
    for part in parts:
        if part:
            text += ("\n" if text and not text.endswith("\n") else "") + part
    return text


START_OF_TIME = 1_684_411_200.0
"""Default of the frozen clock, POSIX seconds: 18 May 2023, 12:00 UTC."""

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
        self._pool = ProcessPool(self._start_zygote)

    def start(self, seed: int = 0, clock: float = START_OF_TIME) -> Repl:
        """Start a REPL; `seed` (63 bits) seeds its randomness, `clock` (POSIX seconds) is its frozen time.

        Raises WorldFault when the sandbox cannot start a process; the next call tries a new zygote.
        """
        process = ConfinedProcess(self._pool.zygote().forks, "repl", self.limits.request_bytes, seed=seed, clock=clock)
        return Repl(process, self.limits)

    def close(self) -> None:
        """End every process of the sandbox. Idempotent; REPLs still in use raise WorldFault."""
        self._pool.close()

    def _start_zygote(self, _: bytes) -> Zygote:
        settings = {**dataclasses.asdict(self.limits), "confinement": self._confinement}
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        environment = {**kept, "PYTHONHASHSEED": "0"}
        zygote = Zygote("the sandbox", [sys.executable, *_FLAGS], _MODULE, settings, environment)
        zygote.ready(_START_SECONDS)
        return zygote
