"""An iteration's rollouts on 8, 64 and 512 hosts, on paper: how long a shard must be, and when the last one begins.

    python tests/benchmarks/scale_on_paper.py      docs/pictures/scale.svg, and a table

A simulation of `flows/workers/ray_cluster.py`, event by event, in any iteration but a run's first. The pipeline's
machine puts the policy into Ray's store and begins all shards, one after the other. The first shard of a host fetches
the policy for all of it, and all policies leave the machine over its own link. The host puts it into files, the shards
are played, and the machine takes each result. Between two looks at all of them it sleeps.

What is measured is in results/ray_costs.json (ray_costs.py), of one machine. What is assumed is in `Network`. Left out:
Ray's own servers, a host that another one sends pieces to, rollouts of different length, machines that fail.
"""

import heapq
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib
from result_file import RESULTS

matplotlib.use("svg")
from matplotlib import pyplot

PICTURE = Path(__file__).resolve().parents[2] / "docs/pictures/scale.svg"
HOSTS = (8, 64, 512)
SHARD_S = tuple(10 ** (step / 8) for step in range(29))
"""Seconds that a worker plays a shard."""
POLICIES = {"adapter, 1.5B": 2**20 * 70, "adapter, 7B": 2**20 * 154, "all weights, 7B": 2**30 * 14}
"""Bytes of a policy: LoRA of rank 16 on all linear layers in float32, or weights in bfloat16, of Qwen2.5."""
BYTES = tuple(2.0**power for power in range(20, 36))
SHARE = 0.9
"""Share of the workers' time that is to be play."""
POLL_S = 0.1


@dataclass(frozen=True)
class Costs:
    """Seconds on the pipeline's machine and on a host, as measured."""

    begin: float
    """To begin a shard."""
    take: float
    """To take a worker's answer."""
    look: float
    """To look at one shard under way."""
    put: float
    """To put a byte of the policy into the store, once."""
    place: float
    """To put a byte into a host's files and compare its digest."""

    @classmethod
    def measured(cls, found: dict[str, Any]) -> "Costs":
        """Return those of results/ray_costs.json; what a whole run took beside the single calls counts as taking."""
        most = found["whole_runs"][-1]
        return cls(
            begin=found["begin_s"],
            take=most["processor_s"] / most["shards"] - found["begin_s"],
            look=found["wait_s"]["4096"] / 4096,
            put=found["sent_s_per_gib"] / 2**30,
            place=(found["received_s_per_gib"] + found["placed_s_per_gib"]) / 2**30,
        )


@dataclass(frozen=True)
class Network:
    """What is assumed."""

    workers: int = 8
    """Of a host."""
    bytes_per_s: float = 10e9 / 8
    """Of the pipeline's machine's link: 10 Gbit/s."""
    way_s: float = 0.0005
    """One way between two machines."""


@dataclass
class Iteration:
    """An iteration of equal shards, one for each worker."""

    hosts: int
    shard_s: float
    policy_bytes: float
    costs: Costs
    network: Network = Network()
    now: float = 0.0
    busy: float = 0.0
    """Seconds in which the pipeline's machine did more than look at shards that all were at play."""
    last_begun: float = 0.0
    """When the last worker began to play."""
    _results: list[float] = field(default_factory=list)
    """Heap of when a shard's result comes."""
    _link_free: float = 0.0
    _has_policy: dict[int, float] = field(default_factory=dict)
    """When each host has the policy in its files."""

    def run(self) -> "Iteration":
        """Play it to the end."""
        shards = self.hosts * self.network.workers
        self._work(self.costs.put * self.policy_bytes)
        for shard in range(shards):
            self._begin(shard)
        while shards:
            if done := self._come():
                self._work(self.costs.look * shards + self.costs.take * done)
                shards -= done
            else:
                sleeps = math.ceil((self._results[0] - self.now) / POLL_S)
                self.now += sleeps * POLL_S
        return self

    @property
    def share(self) -> float:
        """Share of the workers' time in which they played."""
        return self.shard_s / self.now

    def _work(self, seconds: float) -> None:
        self.now += seconds
        self.busy += seconds

    def _begin(self, shard: int) -> None:
        """Begin a shard; it is played as soon as its host has the policy."""
        self._work(self.costs.begin)
        begun = max(self.now + self.network.way_s, self._delivered(shard // self.network.workers))
        self.last_begun = max(self.last_begun, begun)
        heapq.heappush(self._results, begun + self.shard_s + self.network.way_s)

    def _come(self) -> int:
        """Return how many results have come since the last look."""
        done = 0
        while self._results and self._results[0] <= self.now:
            heapq.heappop(self._results)
            done += 1
        return done

    def _delivered(self, host: int) -> float:
        """Return when the host has the policy; its first shard fetches it."""
        if host not in self._has_policy:
            self._link_free = max(self._link_free, self.now) + self.policy_bytes / self.network.bytes_per_s
            self._has_policy[host] = self._link_free + self.policy_bytes * self.costs.place
        return self._has_policy[host]


def least_shard_s(hosts: int, policy_bytes: float, costs: Costs, network: Network = Network()) -> float:
    """Return the seconds that a shard must be played for, so that workers play for `SHARE` of the time."""
    low, high = 1.0, 2.0**24
    while high / low > 1.05:
        middle = (low * high) ** 0.5
        enough = Iteration(hosts, middle, policy_bytes, costs, network).run().share >= SHARE
        low, high = (low, middle) if enough else (middle, high)
    return high


def draw(costs: Costs, picture: Path) -> None:
    """How large a share of the time is play, by a shard's length; when the last worker begins, by a policy's bytes."""
    matplotlib.rcParams["svg.hashsalt"] = "loopline"
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(8.6, 3.2))
    size = POLICIES["adapter, 7B"]
    for number, hosts in enumerate(HOSTS):
        shares = [100 * Iteration(hosts, seconds, size, costs).run().share for seconds in SHARD_S]
        left.plot(SHARD_S, shares, color=f"C{number}", label=f"{hosts} hosts")
        begins = [Iteration(hosts, 1.0, count, costs).run().last_begun for count in BYTES]
        right.plot([count / 2**30 for count in BYTES], begins, color=f"C{number}", label=f"{hosts} hosts")
    left.axhline(100 * SHARE, color="grey", lw=0.8, ls=":")
    left.set(
        xscale="log", xlabel="seconds that a shard is played", ylabel="play, % of the workers' time", ylim=(0, 100)
    )
    right.set(xscale="log", yscale="log", xlabel="the policy, GiB", ylabel="seconds until the last shard begins")
    for axis in (left, right):
        axis.grid(alpha=0.3)
    left.legend(frameon=False, loc="lower right")
    figure.tight_layout()
    figure.savefig(picture, metadata={"Date": None})


def table(costs: Costs) -> str:
    """Return for each number of hosts and each policy: the last shard's begin, the least shard, the machine's work."""
    lines = ["| hosts | policy | last shard begins, s | least shard, s | work of the pipeline's machine, s |"]
    lines.append("|---|---|---|---|---|")
    for hosts in HOSTS:
        for name, size in POLICIES.items():
            least = least_shard_s(hosts, size, costs)
            played = Iteration(hosts, least, size, costs).run()
            lines.append(f"| {hosts} | {name} | {played.last_begun:,.0f} | {least:,.0f} | {played.busy:,.0f} |")
    return "\n".join(lines)


def main() -> None:
    costs = Costs.measured(json.loads((RESULTS / "ray_costs.json").read_text(encoding="utf-8")))
    draw(costs, PICTURE)
    print(costs)
    print(table(costs))


if __name__ == "__main__":
    main()
