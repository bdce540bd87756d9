"""The pool: warm processes in which episodes run, kept healthy; and the tasks that they are told, no ground truth."""

import contextlib
import dataclasses
import json
import socket
import struct
import threading
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

from tasks.core.confinement.fork_server import LAST_SECONDS, LinkBroken, LinkTimeout, ProcessDied, verdict_on_death
from tasks.core.confinement.inside.frames import encode
from tasks.core.confinement.process_pool import Keep, ProcessPool, WarmProcess, Zygote
from tasks.core.interfaces.world import ExecutionTimeout, WorldFault
from tasks.core.records.files import read_json_lines
from tasks.core.worlds.appworld import layout
from tasks.core.worlds.appworld.layout import engine_variables


@dataclass(frozen=True)
class PoolLimits:
    """Seconds are wall-clock unless CPU is said. Over a limit the episode's processes are killed."""

    wall_seconds_per_run: float = 100.0
    """One block of the agent's code, its API calls included (the official server's limit)."""
    cpu_seconds_per_run: float = 10.0
    """CPU time of one block without its API calls; ends endless loops much sooner, and is just on a busy machine."""
    shell_cpu_seconds: int = 300
    """CPU time of an episode's shell, by the kernel."""
    world_cpu_seconds: int = 900
    """CPU time of a world's process, by the kernel. Episodes open only in one that has half of it left."""
    shell_memory_bytes: int = 256 * 2**20
    """Address space that the agent's code may add; more raises MemoryError in it."""
    world_memory_bytes: int = 1024 * 2**20
    api_calls_per_run: int = 10_000
    """API calls of one block, counted where the agent can't reach (the package's own 1,000 can be evaded)."""
    output_chars: int = 200_000
    """Printed characters kept per block; the rest is counted while it is printed."""
    message_bytes: int = 4 * 2**20
    """Largest message of a shell: an API call's arguments, or the output of a block."""
    hung_seconds: float = 20.0
    """How much longer than its limit a process may take before it is taken for hung."""
    start_seconds: float = 120.0
    """Start of the zygote, and of an episode."""
    evaluation_seconds: float = 120.0
    max_concurrent_episodes: int = 256
    """Episodes that are open at once; `open` waits for a free place."""
    waiting_seconds: float = 600.0
    """How long `open` waits before it gives up."""
    idle_worlds: int = 16
    """Worlds that are kept for the next episodes, some 35 MB each."""
    idle_evaluators: int = 4
    episodes_per_process: int = 256
    """After so many a world or an evaluator ends, so that nothing can add up."""
    known_tasks: int = 64
    """Tasks whose data stay in memory."""

    def __post_init__(self) -> None:
        """Raises ValueError when a result within `output_chars` could be over `message_bytes`."""
        if self.message_bytes < 6 * self.output_chars + 2**20:  # a control character escaped takes 6 bytes
            raise ValueError(f"message_bytes must be at least {6 * self.output_chars + 2**20} for these output_chars")


@dataclass(frozen=True)
class TaskData:
    """Specs, and the changes that make the task's databases of the base ones."""

    task_id: str
    instruction: str
    supervisor: dict[str, str]
    datetime: str
    """ISO 8601; clocks stand there during an episode."""
    changes: dict[str, list[Any]]
    """By app: [SQL, parameters, many]."""

    @cached_property
    def message(self) -> dict[str, Any]:
        """The task as worlds and evaluators are told it."""
        names = ("task_id", "supervisor", "datetime", "changes")
        return {name: getattr(self, name) for name in names}

    @cached_property
    def frame(self) -> bytes:
        """`message`, encoded."""
        return encode(self.message)


def read_task_data(root: Path, task_id: str) -> TaskData:
    """Read a task. Raises WorldFault when it does not exist or is broken; the message names the file."""
    folder = layout.task_folder(root, task_id)
    if not folder.is_dir():
        raise WorldFault(f"the task {task_id} doesn't exist: there is no {folder}")
    try:
        specs = json.loads((folder / "specs.json").read_text(encoding="utf-8"))
        if specs["db_version"] != layout.DB_VERSION:
            raise ValueError(f"db_version is {specs['db_version']}, the engine needs {layout.DB_VERSION}")
        supervisor = specs.get("supervisor") or specs["main_user"]
        names = ("first_name", "last_name", "email", "phone_number")
        return TaskData(
            task_id,
            specs["instruction"],
            {name: supervisor[name] for name in names},
            specs["datetime"],
            {app: read_json_lines(folder / "dbs" / f"{app}.jsonl") for app in layout.DATABASES},
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WorldFault(f"{folder}: the task is broken: {type(error).__name__}: {error}") from error


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


class LiveEpisode:
    """Not thread-safe, but `close` may be called from anywhere."""

    def __init__(self, task: TaskData, world: WarmProcess, pool: "EpisodePool") -> None:
        """Fork a shell and open the task in `world`. Raises WorldFault; everything is then given back."""
        self._task, self._world, self._limits, self._pool = task, world, pool.limits, pool
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
        found = {"shell": self._shell_pid, "world": None if self._world.closed else self._world.pid}
        return {name: pid for name, pid in found.items() if pid is not None}

    def run(self, code: str) -> ShellRun:
        """Run one block of code.

        Raises ExecutionTimeout when the code ran over a limit or ended its own process, WorldFault when the world
        broke. The episode must then be closed.
        """
        seconds = self._limits.wall_seconds_per_run + self._limits.hung_seconds
        message = self._ask({"run": code.encode("utf-8", "replace").decode("utf-8")}, seconds)
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
        return self._pool.evaluate(self._task, self._receive(self._limits.evaluation_seconds))

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
        self._pool.give_back(self._world if well else None)

    def _start(self) -> None:
        shell_end, world_end = socket.socketpair()
        with shell_end, world_end:
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):  # the world can't set them; see its watch
                world_end.setsockopt(socket.SOL_SOCKET, option, _LOOK_INTERVAL)
            self._shell_pid = self._zygote.forks.fork("shell", [shell_end.fileno()], clock=self._task.datetime)
            try:
                self._world.link.send({"open": self._task.message}, [world_end.fileno()])
                self._world.link.send({"shell_pid": self._shell_pid})
            except LinkBroken as error:
                raise self._world_ended(error) from error
        message = self._answer(self._limits.start_seconds)
        self._world.cpu_seconds = message["cpu_seconds"]

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


_ZYGOTE = "tasks.core.worlds.appworld.inside.episodes.zygote"


class EpisodePool:
    """Opens live episodes. Thread-safe; nothing runs before the first `open`.

    A zygote that broke is replaced by a new one when the next episode opens; the episodes that lived on the broken one
    end with a WorldFault of their own, no other episode is touched. A world serves again only after an episode in which
    nothing failed.
    """

    def __init__(self, python: Path, root: Path, limits: PoolLimits | None = None) -> None:
        self.limits = limits = limits or PoolLimits()
        self._python, self._root = python, root
        self._places = threading.BoundedSemaphore(limits.max_concurrent_episodes)
        uses, cpu = limits.episodes_per_process, limits.world_cpu_seconds / 2
        self.processes = ProcessPool(
            self._start, world=Keep(limits.idle_worlds, uses, cpu), evaluator=Keep(limits.idle_evaluators, uses, cpu)
        )
        self._task = lru_cache(limits.known_tasks)(partial(read_task_data, root))

    def open(self, task_id: str) -> LiveEpisode:
        """A fresh episode of a task. Waits while `limits.max_concurrent_episodes` are open. Raises WorldFault."""
        if not self._places.acquire(timeout=self.limits.waiting_seconds):
            raise WorldFault(f"no place for another episode: {self.limits.max_concurrent_episodes} are open")
        try:
            task = self._task(task_id)
            world = self.processes.take("world", task.frame)
        except BaseException:
            self._places.release()
            raise
        return LiveEpisode(task, world, self)

    def facts(self, task_id: str) -> dict[str, Any]:
        """Facts about a task at its opening. Raises WorldFault."""
        task = self._task(task_id)
        return facts_of(task, self.processes.zygote(task.frame))

    def evaluate_saved(self, task_id: str, changes: dict[str, list[Any]], hashes: dict[str, Any]) -> Verdict:
        """The verdict on a state that the official server saved: all changes of each app since the base databases.

        Raises WorldFault.
        """
        task = self._task(task_id)
        own = {app: statements[len(task.changes.get(app, ())) :] for app, statements in changes.items()}
        return self.evaluate(task, encode({"changes": own, "hashes": hashes}))

    def evaluate(self, task: TaskData, state: bytes) -> Verdict:
        """The verdict on a state, a frame as a world sends it. Raises WorldFault."""
        seconds, subject = self.limits.evaluation_seconds, f"the evaluation of task {task.task_id}"
        message = self.processes.ask("evaluator", task.frame + state, seconds, subject, task.frame)
        return Verdict(tuple(message["passed"]), tuple(message["failed"]), message["status"], message["question"])

    def give_back(self, world: WarmProcess | None) -> None:
        """Take a world's process back after an episode; None if it died."""
        if world is not None:
            self.processes.give_back(world)
        self._places.release()

    def close(self) -> None:
        """End all processes. Idempotent; episodes that are left raise WorldFault when used."""
        self.processes.close()

    def _start(self, task_frame: bytes) -> Zygote:
        """Start a zygote that forks, with an engine warm from a task's data. Raises WorldFault."""
        settings = {**dataclasses.asdict(self.limits), "confinement": "auto"}
        variables = engine_variables(self._python, self._root)
        zygote = Zygote("AppWorld", [str(self._python), "-P", "-s"], _ZYGOTE, settings, variables)
        zygote.ready(self.limits.start_seconds, task_frame)
        return zygote
