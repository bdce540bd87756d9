"""Starting and ending the zygote process (see `tasks.core.worlds.appworld.inside.episodes`)."""

import dataclasses
import socket
from pathlib import Path
from typing import Literal

from tasks.core.interfaces.world import WorldFault
from tasks.core.worlds.appworld.environment import engine_variables
from tasks.core.worlds.appworld.pool.limits import PoolLimits
from tasks.core.worlds.confinement.fork_server import ForkServer
from tasks.core.worlds.confinement.zygote_process import ZygoteProcess

Confinement = Literal["auto", "seccomp", "audit"]

_MODULE = "tasks.core.worlds.appworld.inside.episodes.zygote"


class Zygote(ZygoteProcess):
    """One live zygote."""

    def __init__(self, python: Path, root: Path, limits: PoolLimits, confinement: Confinement) -> None:
        """Start it; `ready` waits for it. `root` holds `data/`."""
        settings = {**dataclasses.asdict(limits), "confinement": confinement}
        command = [str(python), "-P", "-s"]
        environment = engine_variables(python, root)
        super().__init__("AppWorld's zygote", command, _MODULE, settings, environment, keep_errors=True)
        self.engine: ForkServer | None = None
        """Forks worlds and evaluators; known once the zygote is ready."""
        self.engine_pid: int | None = None
        self.cold = ""
        """Why the engine could not warm up; empty when it did."""
        self.app_descriptions: dict[str, str] = {}
        self._start_seconds = limits.start_seconds

    @property
    def alive(self) -> bool:
        """Whether it can be asked for more, and its engine too."""
        return super().alive and not (self.engine and self.engine.broken)

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
            said = self.said()
            raise WorldFault(f"{fault}; it said: {said}" if said else str(fault)) from fault

    def close(self) -> None:
        """End it and every process that it or its engine forked. Idempotent."""
        if self.engine is not None:
            self.engine.close()
        super().close()
