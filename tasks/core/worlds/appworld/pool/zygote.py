"""Starting and ending the zygote process (see `tasks.core.worlds.appworld.inside.episodes`)."""

import contextlib
import dataclasses
import json
import socket
import subprocess
from pathlib import Path
from typing import Literal

from tasks.core.interfaces.world import WorldFault
from tasks.core.worlds.appworld.environment import engine_variables
from tasks.core.worlds.appworld.pool.fork_server import ForkServer
from tasks.core.worlds.appworld.pool.limits import PoolLimits

Confinement = Literal["auto", "seccomp", "audit"]

_ROOT = Path(__file__).parents[5]
_SEEN = ("tasks", "tasks.core", "tasks.core.worlds")
# Only these packages, and not the pipeline's own interpreter's site-packages, may be seen from inside.
_START = """
import json, sys, types
for name, folder in json.loads({packages!r}):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [folder]
from tasks.core.worlds.appworld.inside.episodes.zygote import main
main({control}, json.loads({limits!r}))
"""
_END_SECONDS = 10.0
_SAID_CHARS = 2000


class Zygote:
    """One live zygote."""

    def __init__(self, python: Path, root: Path, limits: PoolLimits, confinement: Confinement) -> None:
        """Start it; `ready` waits for it. `root` holds `data/`."""
        ours, theirs = socket.socketpair()
        self.forks = ForkServer(ours, "AppWorld's zygote")
        with theirs:
            self._process = _start(python, root, theirs.fileno(), limits, confinement)
        self.engine: ForkServer | None = None
        """Forks worlds and evaluators; known once the zygote is ready."""
        self.engine_pid: int | None = None
        self.cold = ""
        """Why the engine could not warm up; empty when it did."""
        self.app_descriptions: dict[str, str] = {}
        self._start_seconds = limits.start_seconds

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can be asked for more."""
        return self._process.poll() is None and not self.forks.broken and not (self.engine and self.engine.broken)

    def ready(self, task_frame: bytes) -> None:
        """Wait until it can fork, and its engine too, warm from a task's data.

        Raises WorldFault with what it said on its standard error.
        """
        try:
            self.forks.started(self._start_seconds)
            ours, theirs = socket.socketpair()
            self.engine = ForkServer(ours, "AppWorld's engine")
            with theirs:
                self.engine_pid = self.forks.fork("engine", [theirs.fileno()])
            ready = self.engine.started(self._start_seconds, task_frame)
            self.cold, self.app_descriptions = ready["cold"], ready["app_descriptions"]
        except WorldFault as fault:
            self.close()
            said = self._said()
            raise WorldFault(f"{fault}; it said: {said}" if said else str(fault)) from fault

    def close(self) -> None:
        """End it and every process that it forked. Idempotent."""
        if self.engine is not None:
            self.engine.close()
        self.forks.close()
        try:
            self._process.wait(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _said(self) -> str:
        assert self._process.stderr is not None
        with contextlib.suppress(OSError, ValueError), self._process.stderr as stream:
            return stream.read()[-_SAID_CHARS:].decode("utf-8", "replace").strip()
        return ""


def _start(
    python: Path, root: Path, control: int, limits: PoolLimits, confinement: Confinement
) -> "subprocess.Popen[bytes]":
    code = _START.format(
        packages=json.dumps([(name, str(_ROOT.joinpath(*name.split(".")))) for name in _SEEN]),
        control=control,
        limits=json.dumps({**dataclasses.asdict(limits), "confinement": confinement}),
    )
    return subprocess.Popen(
        [str(python), "-P", "-s", "-c", code],
        env=engine_variables(python, root),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=[control],
        start_new_session=True,  # Ctrl-C in the terminal is for the pipeline, which then closes the pool
    )
