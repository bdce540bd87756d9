"""The zygote: imports the package once, then forks players and the engine. Started by the pool."""

import os
import random
import socket
from typing import Any

from tasks.core.confinement.inside.channel import Channel
from tasks.core.confinement.inside.forking import Forker
from tasks.core.confinement.inside.jail import Jail, keep_only
from tasks.core.worlds.bfcl.inside.engine import Engine
from tasks.core.worlds.bfcl.inside.package import import_package, look_up_quickly
from tasks.core.worlds.bfcl.inside.player import serve_player, warm_up


def main(control_descriptor: int, limits: dict[str, Any]) -> None:
    """Serve until the control socket closes. `limits` holds PoolLimits' fields and "confinement"."""
    classes = import_package()
    look_up_quickly(True)
    warm_up(classes)
    os.chdir("/")
    os.environ.clear()
    os.environ["TZ"] = "UTC"
    random.seed(0)  # agents' text is evaluated and may draw numbers: equal text must give equal answers
    zygote = Zygote(socket.socket(fileno=control_descriptor), limits)
    zygote.ready(warning=zygote.jail.warning)
    zygote.serve()


class Zygote(Forker):
    """The forker of players and the engine; the package's docstring shows the tree of processes."""

    def __init__(self, control: socket.socket, limits: dict[str, Any]) -> None:
        super().__init__(control)
        self._limits = limits
        self.jail = Jail(limits["confinement"], limits["player_memory_bytes"], limits["player_cpu_seconds"])

    def become(self, request: dict[str, Any], descriptors: list[int], parent: int) -> None:
        """Become a player on the only descriptor, or the engine that serves it."""
        if request["fork"] == "player":
            channel = Channel(descriptors[0], self._limits["message_bytes"])
            channel.send({"ready": self.jail.shut(descriptors[0], parent)})
            serve_player(channel, self._limits["result_chars"], request["plain"])
        else:
            self.die_with(parent)
            keep_only(descriptors)
            Engine(descriptors[0], self._limits).serve()
