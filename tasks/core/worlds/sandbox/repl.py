"""One REPL process as its owner sees it."""

import re
import sys
import time
from typing import Any

from tasks.core.interfaces.world import ExecutionTimeout, WorldFault
from tasks.core.worlds.confinement.fork_server import ForkServer
from tasks.core.worlds.confinement.inside.frames import OversizedMessage, encode
from tasks.core.worlds.confinement.inside.hostile_json import MalformedMessage
from tasks.core.worlds.confinement.link import Link, LinkBroken, LinkTimeout
from tasks.core.worlds.confinement.verdict import LAST_SECONDS, ProcessDied, verdict_on_death
from tasks.core.worlds.sandbox.interface import ApiError, CallApi, Execution, SandboxLimits

_ADDRESS = re.compile(r" at 0x[0-9a-f]{6,16}\b")
_SHORTEST_WAIT = 0.005
_READY_SECONDS = 60.0


class Repl:
    """A process that keeps one namespace between runs. Not thread-safe; different REPLs may run in different threads.

    The code sees `apis.<app>.<name>(...)`, `ApiError` and the standard library modules that were imported for it.
    """

    def __init__(self, link: Link, pid: int, forks: ForkServer, limits: SandboxLimits) -> None:
        self._link = link
        self._pid = pid
        self._forks = forks
        self._limits = limits
        self._turn = 0
        self._closed = False
        self._confinement = ""
        self._watch = _Watch(pid)
        self.peak_memory_bytes: int | None = None
        """Largest resident memory of the process; known once it has ended."""

    @property
    def pid(self) -> int:
        """Process id; the process may have ended already."""
        return self._pid

    @property
    def confinement(self) -> str:
        """ "seccomp" or "audit" (see `Sandbox`); waits for the process to be ready. Raises WorldFault."""
        self._await_ready()
        return self._confinement

    def run(self, code: str, call_api: CallApi) -> Execution:
        """Run one block of the agent's code; its API calls are answered by `call_api`, in this thread.

        Raises ExecutionTimeout when the code ran over a limit and its process was killed (ProcessDied when the code
        ended the process itself), and WorldFault when the sandbox broke or `call_api` raised anything but ApiError.
        After any of them the REPL is closed.
        """
        try:
            self._await_ready()
            self._turn += 1
            self._watch.start(self._limits.wall_seconds_per_run, self._limits.cpu_seconds_per_run)
            self._send({"run": self._turn, "code": code})
            return self._serve(call_api)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the process. Idempotent, never raises."""
        if not self._closed:
            self._end()

    def _serve(self, call_api: CallApi) -> Execution:
        for _ in range(self._limits.api_calls_per_run + 1):
            message = self._receive()
            if "done" in message:
                return _execution(message, self._turn, self._limits)
            app, name, args, kwargs = _call(message)
            self._send(self._watch.paused(_answer, call_api, app, name, args, kwargs))
        raise ExecutionTimeout(f"the code made more than {self._limits.api_calls_per_run} API calls in one run")

    def _await_ready(self) -> None:
        if self._closed:
            raise WorldFault("the REPL is closed")
        if self._confinement:
            return
        self._watch.start(_READY_SECONDS, _READY_SECONDS)
        try:
            message = self._receive()
        except ExecutionTimeout as error:
            raise WorldFault(f"a sandboxed process failed to start: {error}") from error
        if "fault" in message:
            raise WorldFault(f"a sandboxed process could not be confined: {message['fault']}")
        self._confinement = str(message["ready"])

    def _send(self, message: dict[str, Any]) -> None:
        try:
            frame = encode(message)
        except (TypeError, ValueError, RecursionError) as error:
            raise WorldFault(f"an API answered with something that is no JSON value: {error}") from error
        try:
            self._link.send_frame(frame, seconds=max(self._watch.wall_left(), _SHORTEST_WAIT))
        except LinkTimeout:
            raise ExecutionTimeout("the code did not take an answer in time") from None
        except LinkBroken:
            raise self._death() from None

    def _receive(self) -> dict[str, Any]:
        try:
            return self._link.receive_hostile(self._limits.request_bytes, self._watch.next_look)
        except OversizedMessage as error:
            raise ProcessDied(f"the process sent {error}") from error
        except MalformedMessage as error:
            raise ProcessDied(f"the process sent a malformed message: {error}") from error
        except LinkBroken:
            raise self._death() from None

    def _death(self) -> Exception:
        """End the process and say whose fault its end was."""
        if self._closed:
            return WorldFault("the REPL was closed while it ran")
        return verdict_on_death(self._end(LAST_SECONDS), "sandboxed process")

    def _end(self, patience: float = 0.0) -> int | None:
        """Exit status of the process, or KILLED; None when the zygote is gone too."""
        self._closed = True
        self._link.close()
        try:
            status, self.peak_memory_bytes = self._forks.end(self._pid, patience)
        except WorldFault:
            return None
        return status


class _Watch:
    """CPU and wall clock of the present run."""

    def __init__(self, pid: int) -> None:
        self._clock = (~pid << 3) | 2  # CLOCK_PROCESS_CPUTIME_ID of another process (clock_getcpuclockid(3))
        self._wall_limit = self._cpu_limit = self._wall_start = self._cpu_start = 0.0

    def start(self, wall_limit: float, cpu_limit: float) -> None:
        """Begin a run with these limits, in seconds."""
        self._wall_limit, self._cpu_limit = wall_limit, cpu_limit
        self._wall_start = time.monotonic()
        self._cpu_start = self._cpu_time()

    def paused(self, function: Any, *arguments: Any) -> Any:
        """Call `function` off the clock."""
        begin = time.monotonic()
        try:
            return function(*arguments)
        finally:
            self._wall_start += time.monotonic() - begin

    def wall_left(self) -> float:
        return self._wall_start + self._wall_limit - time.monotonic()

    def next_look(self) -> float:
        """Seconds until a limit can be reached at the earliest. Raises ExecutionTimeout when one is reached."""
        wall_left = self.wall_left()
        if wall_left <= 0:
            raise ExecutionTimeout(f"the code ran for more than {self._wall_limit} s")
        cpu_left = self._cpu_limit - (self._wall_limit - wall_left)
        if cpu_left <= 0:  # less CPU time than wall time may have passed: now it is worth a system call
            cpu_left = self._cpu_limit - (self._cpu_time() - self._cpu_start)
        if cpu_left <= 0:
            raise ExecutionTimeout(f"the code used more than {self._cpu_limit} s of CPU time")
        return min(wall_left, max(cpu_left, _SHORTEST_WAIT))

    def _cpu_time(self) -> float:
        if sys.platform != "linux":
            return time.monotonic()
        try:
            return time.clock_gettime(self._clock)
        except OSError:  # the process has ended; its socket says so
            return self._cpu_start


def _answer(call_api: CallApi, app: str, name: str, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"value": call_api(app, name, args, kwargs)}
    except ApiError as error:
        return {"error": str(error)}
    except (WorldFault, ExecutionTimeout):
        raise
    except Exception as error:
        raise WorldFault(f"apis.{app}.{name} broke: {type(error).__name__}: {error}") from error


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
    # Addresses differ between runs and machines, and mean nothing to the agent.
    text = _ADDRESS.sub(" at 0x0", _joined(parts))
    return Execution(text, bool(error), error[: limits.error_chars])


def _joined(parts: list[str]) -> str:
    text = ""
    for part in parts:
        if part:
            text += ("\n" if text and not text.endswith("\n") else "") + part
    return text
