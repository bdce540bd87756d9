"""One live episode: a shell, a world, and their link to the pipeline."""

import contextlib
import json
import socket
import struct
import threading
from dataclasses import dataclass
from typing import Any, Protocol

from tasks.core.confinement.fork_server import LAST_SECONDS, LinkBroken, LinkTimeout, ProcessDied, verdict_on_death
from tasks.core.confinement.process_pool import WarmProcess, Zygote
from tasks.core.interfaces.world import ExecutionTimeout, WorldFault
from tasks.core.worlds.appworld.pool.limits import PoolLimits
from tasks.core.worlds.appworld.pool.task_data import TaskData

_LOOK_INTERVAL = struct.pack("ll", 0, 200_000)
"""How often a world that waits for its shell looks at the clock, as a timeval."""


@dataclass(frozen=True)
class ShellRun:
    """Outcome of one block of code."""

    output: str
    """As the official server's /execute answers."""
    failed: bool
    completed: bool
    """The agent called complete_task."""
    calls: tuple[tuple[str, bool], ...]
    """(app.api, failed) of every API call, in order, from the world's own log."""


@dataclass(frozen=True)
class Verdict:
    """The official evaluator's answer on the present state."""

    passed: tuple[str, ...]
    failed: tuple[str, ...]
    status: str | None
    """The status with which the agent ended the task: "success", "fail" or None."""
    question: bool
    """The task asks for an answer."""


class Lender(Protocol):
    """The pool, as an episode sees it: the lender of its processes."""

    def evaluate(self, task: TaskData, state: bytes) -> Verdict:
        """The verdict on a state, a frame as a world sends it. Raises WorldFault."""
        ...

    def give_back(self, world: WarmProcess | None) -> None:
        """Take the world's process back after an episode; None if it died."""
        ...


class LiveEpisode:
    """Not thread-safe, but `close` may be called from anywhere."""

    def __init__(self, task: TaskData, world: WarmProcess, limits: PoolLimits, lender: Lender) -> None:
        """Fork a shell and open the task in `world`. Raises WorldFault; everything is then given back."""
        self._task, self._world, self._limits, self._lender = task, world, limits, lender
        self._zygote = world.zygote
        self._shell_pid: int | None = None
        self._lock, self._closed = threading.Lock(), False
        self._well = False
        """The world owes no answer, and neither it nor its shell has failed."""
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    @property
    def facts(self) -> dict[str, Any]:
        """The task's instruction and supervisor, and the app_descriptions."""
        return facts_of(self._task, self._zygote)

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of "shell", which is this episode's alone, and "world"."""
        found = {"shell": self._shell_pid, "world": self._world.pid}
        return {name: pid for name, pid in found.items() if pid is not None}

    def run(self, code: str) -> ShellRun:
        """Run one block of code.

        Raises ExecutionTimeout when the code ran over a limit or ended its own process, WorldFault when the world
        broke. The episode must then be closed.
        """
        message = self._ask({"run": code.encode("utf-8", "replace").decode("utf-8")}, self._run_seconds())
        if "ended" in message:
            raise self._shell_ended(message["ended"], message["detail"])
        calls = tuple((str(name), bool(failed)) for name, failed in message["calls"])
        return ShellRun(message["output"], message["failed"], message["completed"], calls)

    def state(self) -> dict[str, Any]:
        """Recorded changes of every app's database, model hashes and the log of API calls. Raises WorldFault."""
        return self._ask({"state": True}, self._limits.evaluation_seconds)

    def evaluate(self) -> Verdict:
        """Evaluate the present state in a process of its own. Raises WorldFault."""
        self._send({"state": True})
        return self._lender.evaluate(self._task, self._receive(self._limits.evaluation_seconds))

    def close(self) -> None:
        """End the episode's shell, and its world unless that may serve another. Idempotent, never raises."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        well = self._well
        if not well:
            self._world.end()
        self._end_shell()
        self._lender.give_back(self._world if well else None)

    def _start(self) -> None:
        shell_end, world_end = socket.socketpair()
        with shell_end, world_end:
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):  # the world can't set them; see its watch
                world_end.setsockopt(socket.SOL_SOCKET, option, _LOOK_INTERVAL)
            self._shell_pid = self._zygote.forks.fork("shell", [shell_end.fileno()], clock=self._task.datetime)
            try:
                self._world.link.send_frame(self._task.opening_frame, [world_end.fileno()])
                self._world.link.send({"shell_pid": self._shell_pid})
            except LinkBroken as error:
                raise self._world_ended(error) from error
        message = self._answer(self._limits.start_seconds)
        self._world.cpu_seconds = message["cpu_seconds"]

    def _run_seconds(self) -> float:
        return self._limits.wall_seconds_per_run + self._limits.hung_seconds

    def _ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        self._send(request)
        return self._answer(seconds)

    def _send(self, request: dict[str, Any]) -> None:
        if self._closed:
            raise WorldFault("the episode is closed")
        self._well = False
        try:
            self._world.link.send(request)
        except LinkBroken as error:
            raise self._world_ended(error) from error

    def _answer(self, seconds: float) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._receive(seconds)[4:])
        if "fault" in message:
            self._well = False
            raise WorldFault(f"the world of task {self._task.task_id} broke: {message['fault']}")
        return message

    def _receive(self, seconds: float) -> bytes:
        try:
            frame = self._world.link.receive_frame(seconds)
        except LinkBroken as error:
            raise self._world_ended(error) from error
        self._well = True
        return frame

    def _shell_ended(self, reason: str, detail: str) -> Exception:
        self._well, limits = False, self._limits
        match reason:
            case "cpu_time":
                return ExecutionTimeout(f"the code used more than {limits.cpu_seconds_per_run:g} s of CPU time")
            case "wall_time":
                return ExecutionTimeout(f"the code ran for more than {limits.wall_seconds_per_run:g} s")
            case "api_calls":
                return ExecutionTimeout(f"the code made more than {limits.api_calls_per_run} API calls in one run")
            case "protocol":
                return ProcessDied(f"the code broke its shell: {detail}")
        return verdict_on_death(self._end_shell(LAST_SECONDS), "shell")

    def _world_ended(self, error: LinkBroken) -> Exception:
        if self._closed:
            return WorldFault("the episode was closed while it ran")
        if isinstance(error, LinkTimeout):
            return WorldFault(f"the world of task {self._task.task_id} hangs: it {error}")
        return verdict_on_death(self._world.end(LAST_SECONDS), "world", trusted=True)

    def _end_shell(self, patience: float = 0.0) -> int | None:
        """Exit status of the shell, or KILLED; None when nobody knows it any more."""
        pid, self._shell_pid = self._shell_pid, None
        if pid is not None:
            with contextlib.suppress(WorldFault):
                return self._zygote.forks.end(pid, patience)[0]
        return None


def facts_of(task: TaskData, zygote: Zygote) -> dict[str, Any]:
    """Facts that the opening of an episode states about its task."""
    return {
        "instruction": task.instruction,
        "supervisor": task.supervisor,
        "app_descriptions": zygote.greeting["app_descriptions"],
    }
