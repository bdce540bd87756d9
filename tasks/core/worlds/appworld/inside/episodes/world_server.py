"""An episode's world: runs code in its shell, answers the shell's requests, keeps the log, hands out the state."""

import os
import socket
import time
from typing import Any, NoReturn

from tasks.core.confinement.inside import frames
from tasks.core.confinement.inside.frames import MalformedMessage
from tasks.core.worlds.appworld.inside.episodes.databases import END, TaskDatabases
from tasks.core.worlds.appworld.inside.episodes.engine import ApiServer


class ShellEnded(Exception):  # noqa: N818
    """The shell can't go on; `reason` is a key that the pipeline knows."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.reason, self.detail = reason, detail


class WorldServer:
    """Serves one episode after another: between the pipeline, which it obeys, and a shell, which it does not trust."""

    def __init__(
        self, pipeline: socket.socket, api: ApiServer, databases: TaskDatabases, limits: dict[str, Any]
    ) -> None:
        self._pipeline, self._api, self._databases, self._limits = pipeline, api, databases, limits
        self._shell = -1

    def serve(self) -> NoReturn:
        """Answer the pipeline until it hangs up."""
        while True:
            request, descriptors = frames.receive_with_descriptors(self._pipeline)
            match request:
                case {"open": task}:
                    answer = self._open(task, descriptors)
                case {"run": code}:
                    answer = self._run(code)
                case _:
                    answer = self._state()
            frames.send(self._pipeline.fileno(), answer)

    def _open(self, task: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Be the task's world for the shell behind the new descriptor, whose process id a second frame tells."""
        if self._shell >= 0:
            os.close(self._shell)
        (self._shell,) = descriptors
        shell_pid = frames.receive(self._pipeline.fileno())["shell_pid"]
        self._cpu_clock = (~shell_pid << 3) | 2  # CLOCK_PROCESS_CPUTIME_ID of another process
        self._turn = 0
        self._api.log.clear()
        self._databases.hold(task["datetime"], task["changes"], END)
        return {"ready": True, "cpu_seconds": time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID)}

    def _run(self, code: str) -> dict[str, Any]:
        self._turn += 1
        begin = len(self._api.log)
        try:
            output, failed = self._executed(code)
            answer = {"output": output, "failed": failed, "completed": self._completed(begin)}
        except ShellEnded as end:
            answer = {"ended": end.reason, "detail": end.detail}
        log = self._api.log[begin:]
        return {**answer, "calls": [[entry["api"], entry["status"] != 200] for entry in log]}

    def _executed(self, code: str) -> tuple[str, bool]:
        try:
            self._start_watch()
            frames.send(self._shell, {"run": self._turn, "code": code}, self._check_watch)
            for _ in range(self._limits["api_calls_per_run"] + 1):
                message = self._next_message()
                if "done" in message:
                    return _result(message, self._turn)
                self._check_watch()  # a shell that asks all the time never keeps its reader waiting
                frames.send(self._shell, self._answered(message), self._check_watch)
        except frames.PeerGone:
            raise ShellEnded("died") from None
        raise ShellEnded("api_calls")

    def _answered(self, message: dict[str, Any]) -> dict[str, Any]:
        match message:
            case {"method": str(), "url": str(), "headers": list(headers), "body": str()}:
                if all(isinstance(pair, list) and len(pair) == 2 for pair in headers):
                    return self._api.answer(message)
        raise ShellEnded("protocol", "a request of the wrong shape")

    def _next_message(self) -> dict[str, Any]:
        try:
            return frames.receive_hostile(self._shell, self._limits["message_bytes"], self._check_watch)
        except (MalformedMessage, frames.OversizedMessage) as error:
            raise ShellEnded("protocol", str(error)) from None

    def _start_watch(self) -> None:
        # Inside the engine time.monotonic stands still.
        self._wall_end = time.clock_gettime(time.CLOCK_MONOTONIC) + self._limits["wall_seconds_per_run"]
        self._cpu_end = self._cpu_time() + self._limits["cpu_seconds_per_run"]

    def _check_watch(self) -> None:
        if self._cpu_time() > self._cpu_end:
            raise ShellEnded("cpu_time")
        if time.clock_gettime(time.CLOCK_MONOTONIC) > self._wall_end:
            raise ShellEnded("wall_time")

    def _cpu_time(self) -> float:
        try:
            return time.clock_gettime(self._cpu_clock)
        except OSError:  # the shell has ended; its socket says so
            return 0.0

    def _completed(self, begin: int) -> bool:
        from appworld.apps.supervisor.models import Task

        called = any(entry["api"] == "supervisor.complete_task" for entry in self._api.log[begin:])
        return called and Task.first().status is not None

    def _state(self) -> dict[str, Any]:
        """Changes, hashes and log: all that an evaluation or an export needs."""
        return {"changes": self._databases.changes(), "hashes": self._databases.hashes(), "log": self._api.log}


def _result(message: dict[str, Any], turn: int) -> tuple[str, bool]:
    match message:
        case {"done": int(number), "output": str(output), "failed": bool(failed)} if number == turn:
            return output, failed
    raise ShellEnded("protocol", "a result of the wrong shape")
