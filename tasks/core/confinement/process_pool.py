"""A zygote, which forks other processes (see `inside.forking`), and the pool of the processes that it forked."""

import contextlib
import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tasks.core.confinement.fork_server import ForkedProcess, ForkServer, LinkBroken
from tasks.core.confinement.inside.frames import encode
from tasks.core.interfaces.world import WorldFault

Confinement = Literal["auto", "seccomp", "audit"]
"""See `inside.jail`."""

_ROOT = Path(__file__).parents[3]
# The packages above an `inside` are empty stand-ins: no module of the pipeline is imported, and the pipeline's
# site-packages are hidden. Modules cannot register functions to run at a fork (locks of logging and threading, a new
# seed of `random`): a zygote has one thread, and these calls take a third of a fork's time. Garbage collection is off
# until the zygote is ready (`inside.forking`): nothing that it loads is garbage.
_START = """
import gc, json, os, sys, types
gc.disable()
os.register_at_fork = lambda **_: None
for name, folder in json.loads({packages!r}):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [folder]
from {module} import main
main({control}, json.loads({settings!r}))
"""
_END_SECONDS = 10.0
_SAID_CHARS = 2000


class Zygote:
    """A running zygote. With an engine, the process that holds the data: agents' code must not inherit the data."""

    def __init__(
        self,
        subject: str,
        python: Sequence[str],
        module: str,
        settings: Mapping[str, Any],
        environment: Mapping[str, str],
    ) -> None:
        """Run `main(control descriptor, settings)` of `module`, from an `inside` package, in a new interpreter.

        `subject` names whose process it is in errors; `python` is the command with its flags. `ready` waits for it.
        """
        ours, theirs = socket.socketpair()
        self._subject, self.forks = subject, ForkServer(ours, f"{subject}'s zygote")
        self._engine: ForkServer | None = None
        self.greeting: dict[str, Any] = {}
        """The engine's ready message."""
        with theirs:
            self._process = subprocess.Popen(
                [*python, "-c", _start(module, theirs.fileno(), settings)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C in the terminal goes to the pipeline, which then closes the zygote
            )
        self.pids = [self._process.pid]
        """Process ids of the zygote and its engine."""

    @property
    def engine(self) -> ForkServer:
        """The process that holds the data and forks what needs it."""
        assert self._engine is not None, "it is started by `ready`"
        return self._engine

    @property
    def alive(self) -> bool:
        """Whether the zygote and its engine can still fork."""
        engine = self._engine
        return self._process.poll() is None and not self.forks.broken and (engine is None or not engine.broken)

    def ready(self, seconds: float, frame: bytes | None = None) -> None:
        """Wait until it can fork; `frame` starts its engine and is sent to it, None: there is no engine.

        Raises WorldFault with its standard error, after ending it.
        """
        try:
            self.forks.started(seconds)
            if frame is not None:
                ours, theirs = socket.socketpair()
                with theirs:
                    self._engine = ForkServer(ours, f"{self._subject}'s engine")
                    self.pids.append(self.forks.fork("engine", [theirs.fileno()]))
                self.greeting = self._engine.started(seconds, frame)
        except WorldFault as fault:
            self._end()
            errors = self._said()
            raise WorldFault(f"{fault}; its standard error: {errors}" if errors else str(fault)) from fault

    def close(self) -> None:
        """End the zygote, its engine and every process that they forked. Idempotent."""
        self._end()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def _end(self) -> None:
        if self._engine is not None:
            self._engine.close()
        self.forks.close()
        try:
            self._process.wait(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _said(self) -> str:
        """Return the last characters of its standard error; call once, after its end."""
        assert self._process.stderr is not None
        with contextlib.suppress(OSError, ValueError), self._process.stderr as stream:
            return stream.read()[-_SAID_CHARS:].decode("utf-8", "replace").strip()
        return ""


def kept_variables(*names: str) -> dict[str, str]:
    """Return the environment of a package's processes: few of our variables, since agents' code may read them."""
    ours = {name: os.environ[name] for name in ("LANG", "LD_LIBRARY_PATH", "TMPDIR", *names) if name in os.environ}
    return {**ours, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}


def _start(module: str, control: int, settings: Mapping[str, Any]) -> str:
    homes = (module.partition(".inside.")[0], "tasks.core.confinement")
    names = {home.rsplit(".", depth)[0] for home in homes for depth in range(home.count(".") + 1)}
    packages = [(name, str(_ROOT.joinpath(*name.split(".")))) for name in sorted(names)]
    return _START.format(
        packages=json.dumps(packages), module=module, control=control, settings=json.dumps(dict(settings))
    )


class Keep(NamedTuple):
    """Limits beyond which an idle process of a kind is ended instead of kept."""

    most_idle: int
    most_uses: int
    most_cpu_seconds: float


class WarmProcess(ForkedProcess):
    """A reusable process that runs no agent's code. Not thread-safe: one episode or evaluation uses it at a time."""

    def __init__(self, zygote: Zygote, kind: str) -> None:
        """Fork a process from the zygote's engine. Raises WorldFault."""
        super().__init__(zygote.engine, kind)
        self.zygote, self.kind = zygote, kind
        self.uses = 0
        self.cpu_seconds = 0.0
        """CPU seconds used, as last reported by the process."""


class ProcessPool:
    """A thread-safe holder of one zygote and its idle processes. Nothing runs before the first request.

    A zygote that broke is replaced; processes forked by it end with a WorldFault of their own.
    """

    def __init__(self, start: Callable[[bytes], Zygote], **kept: Keep) -> None:
        """Take a function that starts a ready zygote on a frame for its engine, and the kinds that are kept."""
        self._start, self._kept = start, kept
        self._lock, self._start_lock = threading.Lock(), threading.Lock()
        self._zygote: Zygote | None = None
        self._idle: list[WarmProcess] = []
        self._closed = False

    def zygote(self, frame: bytes = b"") -> Zygote:
        """Return the running zygote, or start one. Raises WorldFault, also when the pool is closed."""
        with self._start_lock:
            with self._lock:
                if self._closed:
                    raise WorldFault("the pool is closed")
                zygote = self._zygote
            if zygote is not None and zygote.alive:
                return zygote
            if zygote is not None:
                zygote.close()
            fresh = self._start(frame)
            with self._lock:
                self._zygote, closed = fresh, self._closed
            if closed:
                fresh.close()
                raise WorldFault("the pool is closed")
            return fresh

    def take(self, kind: str, frame: bytes = b"") -> WarmProcess:
        """Return the zygote's most recently used idle process of a kind, or start one. Raises WorldFault."""
        zygote = self.zygote(frame)
        with self._lock:
            usable = [one for one in self._idle if one.zygote is zygote and one.link.quiet]
            useless = [one for one in self._idle if one not in usable]
            fitting = [one for one in usable if one.kind == kind]
            self._idle = [one for one in usable if not fitting or one is not fitting[-1]]
        for process in useless:
            process.end()
        taken = fitting[-1] if fitting else WarmProcess(zygote, kind)
        taken.uses += 1
        return taken

    def give_back(self, process: WarmProcess) -> None:
        """Keep the process for its next user if the limits allow. It must have answered every request."""
        keep = self._kept[process.kind]
        worn = process.uses >= keep.most_uses or process.cpu_seconds >= keep.most_cpu_seconds
        with self._lock:
            idle = sum(one.kind == process.kind for one in self._idle)
            if kept := not self._closed and not worn and idle < keep.most_idle:
                self._idle.append(process)
        if not kept:
            process.end()

    def ask(self, kind: str, question: dict[str, Any] | bytes, seconds: float, subject: str, frame: bytes = b"") -> Any:
        """Return what a process of this kind answers. Raises WorldFault, with `subject` as what went wrong."""
        process = self.take(kind, frame)
        try:
            process.link.send_frame(question if isinstance(question, bytes) else encode(question), seconds=seconds)
            answer = process.link.receive(seconds)
            if "fault" in answer:
                raise WorldFault(f"{subject} failed: {answer['fault']}")
        except LinkBroken as error:
            process.end()
            raise WorldFault(f"{subject} {error}") from error
        except BaseException:
            process.end()
            raise
        process.cpu_seconds = answer.get("cpu_seconds", process.cpu_seconds)
        self.give_back(process)
        return answer

    @property
    def pids(self) -> list[int]:
        """Process ids that live on between episodes: the zygote, its engine, idle processes in order of their kinds."""
        with self._lock:
            zygote, idle = self._zygote, list(self._idle)
        kinds = list(self._kept)
        idle.sort(key=lambda one: kinds.index(one.kind))
        return [*(zygote.pids if zygote is not None else ()), *(one.pid for one in idle)]

    def close(self) -> None:
        """End all processes; those in use are ended when given back, and raise WorldFault before. Idempotent."""
        with self._lock:
            self._closed = True
            zygote, self._zygote, idle, self._idle = self._zygote, None, self._idle, []
        if zygote is not None:
            zygote.close()
        for process in idle:
            process.end()
