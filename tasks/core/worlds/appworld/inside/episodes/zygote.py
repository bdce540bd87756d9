"""The zygote: imports the engine once, then forks shells and the engine's process. Started by the pool."""

import os
import socket
from typing import Any

from tasks.core.confinement.inside.forking import Forker
from tasks.core.confinement.inside.jail import Jail, keep_only
from tasks.core.worlds.appworld.inside.episodes.engine import Engine
from tasks.core.worlds.appworld.inside.episodes.engine_process import EngineProcess
from tasks.core.worlds.appworld.inside.episodes.shell import Shell


def main(control_descriptor: int, limits: dict[str, Any]) -> None:
    """Serve until the control socket ends. `limits` holds PoolLimits' fields and "confinement"."""
    os.chdir("/")
    zygote = Zygote(socket.socket(fileno=control_descriptor), limits)
    zygote.ready(warning=zygote.jail.warning)
    zygote.serve()


class Zygote(Forker):
    """See the package's docstring for the tree of processes."""

    def __init__(self, control: socket.socket, limits: dict[str, Any]) -> None:
        super().__init__(control)
        self._limits = limits
        self.jail = Jail(limits["confinement"], limits["shell_memory_bytes"], limits["shell_cpu_seconds"])
        self._engine = Engine()
        self._shell = Shell(limits)

    def become(self, request: dict[str, Any], descriptors: list[int], parent: int) -> None:
        """A shell on the one descriptor, or the engine's process that serves it."""
        if request["fork"] == "shell":
            self._shell.start(request["clock"])
            self.jail.shut(descriptors[0], parent)
            self._shell.serve(descriptors[0])
        else:
            self.die_with(parent)
            keep_only(descriptors)
            EngineProcess(descriptors[0], self._engine, self._limits).serve()
