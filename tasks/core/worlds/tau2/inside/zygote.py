"""The zygote: imports the package once, then forks players and the engine. Started by the pool."""

import json
import os
import socket
import time
from typing import Any

from tasks.core.confinement.inside import frames
from tasks.core.confinement.inside.channel import Channel
from tasks.core.confinement.inside.forking import Forker
from tasks.core.confinement.inside.jail import Jail, keep_only
from tasks.core.worlds.tau2.inside.judge import Judge
from tasks.core.worlds.tau2.inside.package import Domain
from tasks.core.worlds.tau2.inside.player import serve_player, warm_up


class Engine(Forker):
    """The forker of judges. Reports on `control` when it is ready."""

    def __init__(self, control: int, domain: Domain, limits: dict[str, Any]) -> None:
        super().__init__(socket.socket(fileno=control))
        rows = json.loads((domain.folder / "tasks.json").read_text(encoding="utf-8"))
        splits = json.loads((domain.folder / "split_tasks.json").read_text(encoding="utf-8"))
        self._judge = Judge(domain, {row["id"]: row for row in rows}, splits)
        self._jail = Jail(limits["confinement"], limits["judge_memory_bytes"], limits["judge_cpu_seconds"])
        self.ready()

    def become(self, request: dict[str, Any], descriptors: list[int], parent: int) -> None:
        """Become a judge that serves the only descriptor."""
        self._jail.shut(descriptors[0], parent)
        while True:
            answer = self._judge.answer(frames.receive(descriptors[0]))
            frames.send(descriptors[0], {**answer, "cpu_seconds": time.process_time()})


def main(control_descriptor: int, limits: dict[str, Any]) -> None:
    """Serve until the control socket closes. `limits` holds PoolLimits' fields, "confinement", "domain" and "solo"."""
    domain = Domain(limits["domain"], solo=limits["solo"])
    warm_up(domain)
    os.chdir("/")
    os.environ.clear()
    os.environ["TZ"] = "UTC"
    zygote = Zygote(socket.socket(fileno=control_descriptor), domain, limits)
    zygote.ready(warning=zygote.jail.warning)
    zygote.serve()


class Zygote(Forker):
    """The forker of players and the engine; the package's docstring shows the tree of processes."""

    def __init__(self, control: socket.socket, domain: Domain, limits: dict[str, Any]) -> None:
        super().__init__(control)
        self._domain, self._limits = domain, limits
        self._environment = domain.environment(solo_mode=domain.solo)
        self.jail = Jail(limits["confinement"], limits["player_memory_bytes"], limits["player_cpu_seconds"])

    def become(self, request: dict[str, Any], descriptors: list[int], parent: int) -> None:
        """Become a player on the only descriptor, or the engine that serves it."""
        if request["fork"] == "player":
            channel = Channel(descriptors[0], self._limits["message_bytes"])
            channel.send({"ready": self.jail.shut(descriptors[0], parent)})
            serve_player(channel, self._environment)
        else:
            self.die_with(parent)
            keep_only(descriptors)
            Engine(descriptors[0], self._domain, self._limits).serve()
