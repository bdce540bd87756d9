"""The sandbox: a source of confined REPL processes, and one such process as its owner sees it."""

import dataclasses
import os
import re
import sys
from typing import Any

from tasks.core.confinement.confined_process import ConfinedProcess
from tasks.core.confinement.fork_server import ProcessDied
from tasks.core.confinement.process_pool import ProcessPool
from tasks.core.confinement.zygote import Confinement, Zygote
from tasks.core.interfaces.world import ExecutionTimeout, WorldFault
from tasks.core.sandbox.interface import ApiError, CallApi, Execution, SandboxLimits

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
        try:
            self.process.begin(self._limits.wall_seconds_per_run, self._limits.cpu_seconds_per_run)
            self._turn += 1
            self.process.send({"run": self._turn, "code": code})
            return self._serve(call_api)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the process. Idempotent, never raises."""
        self.process.close()

    def _serve(self, call_api: CallApi) -> Execution:
        for _ in range(self._limits.api_calls_per_run + 1):
            message = self.process.receive()
            if "done" in message:
                return _execution(message, self._turn, self._limits)
            app, name, args, kwargs = _call(message)
            self.process.send(self.process.off_the_clock(_answer, call_api, app, name, args, kwargs))
        raise ExecutionTimeout(f"the code made more than {self._limits.api_calls_per_run} API calls in one run")


def _answer(call_api: CallApi, app: str, name: str, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"value": call_api(app, name, args, kwargs)}
    except ApiError as error:
        return {"error": str(error)}
    except (WorldFault, ExecutionTimeout):
        raise
    except Exception as error:
        raise WorldFault(f"apis.{app}.{name} failed: {type(error).__name__}: {error}") from error


def _call(message: dict[str, Any]) -> tuple[str, str, list[Any], dict[str, Any]]:
    match message:
        case {"call": [str(app), str(name), list(args), dict(kwargs)]}:
            return app, name, args, kwargs
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
