"""Room for workers on the machines of a Ray cluster, and what is said while there is none. Imports no Ray."""

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tasks.core.config.machines import RayConfig
from tasks.core.processes.shown_work import duration

SAY_EVERY_S = 60.0
Nodes = Sequence[Mapping[str, Any]]
"""The list that `ray.nodes()` returns."""
_log = logging.getLogger(__name__)


class ClusterUnavailable(RuntimeError):  # noqa: N818
    """There is no such Ray cluster, or none of its machines has what a worker needs."""


def workers_on(node: Mapping[str, Any], config: RayConfig) -> int:
    """Return how many workers a machine holds."""
    held = node["Resources"] if node["Alive"] else {}
    return min(int(held.get(kind, 0) // count) for kind, count in _wanted(config).items() if count > 0)


class Room:
    """The wait for machines that hold a worker, or the ranks of an update: as many machines as that has."""

    def __init__(
        self,
        config: RayConfig,
        machines: int = 1,
        say: Callable[[str], None] = _log.warning,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config, self._machines, self._say, self._clock = config, machines, say, clock
        self._since: float | None = None
        self._said_at = 0.0

    def look(self, nodes: Nodes) -> bool:
        """Return whether there is room; where there is none, say what is waited for, at once and each minute.

        Raises ClusterUnavailable after `machines.ray.wait_s` without any.
        """
        now = self._clock()
        there = [name_of(node) for node in nodes if workers_on(node, self.config)]
        if len(there) >= self._machines:
            if self._since is not None:
                self._say(f"machines.ray: going on with {', '.join(there)}, {duration(now - self._since)} later")
                self._since = None
            return True
        began = self._since is None
        self._since = now if self._since is None else self._since
        waited = now - self._since
        if waited >= self.config.wait_s:
            raise ClusterUnavailable(f"{self._lack(nodes)}. Nothing is lost: run again (machines.ray.wait_s)")
        if began or now - self._said_at >= SAY_EVERY_S:
            self._said_at = now
            self._say(f"{self._lack(nodes)}. Waiting: {duration(waited)} of {duration(self.config.wait_s)}")
        return False

    def where(self, nodes: Nodes, noted: str, reason: str) -> str:
        """Return " on MACHINE", or "" where it is unknown.

        It is the machine whose id a worker noted, else the one in Ray's message, else the only one with workers.
        """
        names = {name_of(node) for node in nodes if node["NodeID"] == noted}
        names = names or {
            name_of(node) for node in nodes if re.search(rf"\b{re.escape(node['NodeManagerAddress'])}\b", reason)
        }
        names = names or {name_of(node) for node in nodes if workers_on(node, self.config)}
        return f" on {names.pop()}" if len(names) == 1 else ""

    def _lack(self, nodes: Nodes) -> str:
        """Return what each machine has, and what would help."""
        cpus, gpus = _wanted(self.config).values()
        present = {name_of(node): _held(node) for node in nodes if node["Alive"]}
        lost = {name_of(node): "lost" for node in nodes if not node["Alive"]}
        held = ", ".join(f"{name}: {has}" for name, has in (lost | present).items()) or "there are none"
        help_ = "start a worker with `ray start --address`"
        if any(node["Alive"] and node["Resources"].get("CPU", 0) >= cpus for node in nodes):
            help_ += ", or lower machines.ray.gpus_per_worker"
        lack = f"a worker needs {cpus:g} CPUs and {gpus:g} GPUs; no machine has them"
        if self._machines > 1:
            lack = f"an update needs {self._machines} machines with {cpus:g} CPUs and {gpus:g} GPUs each"
        return f"machines.ray: {lack} ({held}); {help_}"


def shards_on(nodes: Nodes, free: Mapping[str, Mapping[str, float]], config: RayConfig) -> dict[str, str]:
    """Return how many shards each machine plays, by what its workers take of it.

    `free`: what no worker has, by kind and the machine's id.
    """
    kind, count = next((kind, count) for kind, count in reversed(_wanted(config).items()) if count > 0)
    found = {}
    for node in nodes:
        if places := workers_on(node, config):
            taken = node["Resources"].get(kind, 0) - free.get(node["NodeID"], {}).get(kind, 0)
            found[name_of(node)] = f"plays {round(taken / count)} shards, has room for {places}"
    return found


def name_of(node: Mapping[str, Any]) -> str:
    """Return a machine's name and address."""
    name, address = node["NodeManagerHostname"], node["NodeManagerAddress"]
    return str(address) if name == address else f"{name} ({address})"


def _wanted(config: RayConfig) -> dict[str, float]:
    return {"CPU": config.cpus_per_worker, "GPU": config.gpus_per_worker}


def _held(node: Mapping[str, Any]) -> str:
    return " and ".join(f"{node['Resources'].get(kind, 0):g} {kind}s" for kind in ("CPU", "GPU"))
