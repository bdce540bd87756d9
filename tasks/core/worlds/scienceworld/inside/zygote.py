"""The zygote: imports py4j once, then forks a process for each JVM. Started by the pool."""

import socket
from typing import Any

from tasks.core.confinement.inside import frames
from tasks.core.confinement.inside.forking import Forker
from tasks.core.confinement.inside.jail import keep_only
from tasks.core.confinement.inside.network import leave_network
from tasks.core.worlds.scienceworld.inside.jvm import Jvm
from tasks.core.worlds.scienceworld.inside.simulators import Simulators


def main(control_descriptor: int, settings: dict[str, Any]) -> None:
    """Serve until the control socket closes. `settings`: "java" and "heap_mib"."""
    zygote = Zygote(socket.socket(fileno=control_descriptor), settings)
    zygote.ready()
    zygote.serve()


class Zygote(Forker):
    """The forker of simulator processes; the package's docstring shows the tree of processes."""

    def __init__(self, control: socket.socket, settings: dict[str, Any]) -> None:
        super().__init__(control)
        self._settings = settings

    def become(self, request: dict[str, Any], descriptors: list[int], parent: int) -> None:
        """Become a simulator process on the only descriptor, with its own JVM; serve one request at a time."""
        keep_only(descriptors)
        alone = leave_network()
        self.die_with(parent)  # after the change of user, because that change makes the kernel forget it
        channel = descriptors[0]
        jvm = Jvm(self._settings["java"], request["heap_mib"])
        try:
            simulators = Simulators(jvm.gateway)
            frames.send(channel, {"jvm_pid": jvm.pid, "alone": alone})
            while True:
                frames.send(channel, simulators.answer(frames.receive(channel)))
        finally:
            jvm.kill()
