"""Host drills: disturb an update on two and three hosts, and compare what it comes to with one host's bytes.

    python -m tests.benchmarks.host_drills [--number 20] [--minutes 60]      as root; results/host_drills.json

Each drill has hosts of its own (Linux namespaces on this machine), of which only the first has the project. A drill
passes if the fault ends the update with one line that names the host, or does not end it, and the policy in the end,
after a second run where the first had to fail, has the bytes of as many ranks on one host. `join_s` are the seconds
from the start of `loopline join`, for which the pipeline waits, until all ranks train.
"""

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any

from tasks.core.records.files import digest
from tests.benchmarks.result_file import write_result
from tests.flows.tiny_project import ROOT
from tests.hosts.network import Host, Network
from tests.hosts.parts import finished, join, make_update, start_update, trains_on, waits

LABEL = "update_policy@i001: "
USUAL = ("training on", "Waiting:", "log-probs differ")
"""Lines of an update without a fault; its engine's log-probs are made up."""
HOUR_OFF = "import time\nreal = time.time\ntime.time = lambda: real() + 3600\n"


def main() -> None:
    """Drill, for each fault on two hosts and on three in turn, and write what came out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--number", type=int, default=20, help="drills")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin none after so long")
    parsed = parser.parse_args()
    warnings.simplefilter("ignore")
    began, found = time.monotonic(), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as folder:
        expected = cache(lambda hosts: on_one_host(Path(folder), hosts))
        drills = cycle([(fault, hosts) for hosts in (2, 3) for fault in FAULTS])
        for number, (fault, hosts) in zip(range(parsed.number), drills, strict=False):
            if time.monotonic() - began > 60 * parsed.minutes:
                break
            found.append(drilled(Path(folder) / str(number), fault, hosts, expected(hosts)))
            print(found[-1], file=sys.stderr, flush=True)
            joins = [second for drill in found for second in drill["join_s"]]
            figures = {"drills": len(found), "passed": sum(drill["passed"] for drill in found), "each": found}
            write_result("host_drills", {"join_s": round(statistics.median(joins), 1), **figures}, quiet=True)


def on_one_host(folder: Path, ranks: int) -> str:
    """Return the digest of the policy that so many ranks of one host train."""
    layout = make_update(folder / f"one_{ranks}", ranks=ranks, nodes=1)
    command = [sys.executable, "-m", "tests.hosts.one_update", str(layout.root)]
    subprocess.run(command, check=True, cwd=layout.root, env={**os.environ, "PYTHONPATH": str(ROOT)})
    return digest(layout.policy("i001"))


@dataclass
class Scene:
    """An update that trains on all hosts."""

    network: Network
    hosts: list[Host]
    pipeline: "subprocess.Popen[str]"

    @property
    def last(self) -> Host:
        """Host to which faults happen."""
        return self.hosts[-1]


def drilled(folder: Path, fault: Callable[[Scene], None], count: int, expected: str) -> dict[str, Any]:
    """Make a fault on an update over `count` hosts, run the update again where it ended; return what came out."""
    folder.mkdir()
    layout = make_update(folder / "project", nodes=count)
    (folder / "clock").mkdir()
    (folder / "clock" / "sitecustomize.py").write_text(HOUR_OFF)
    network, told, ended_s = Network(folder), "", 0.0
    try:
        first = network.host("a", shared=[layout.root])
        others = [network.host(name, shared=[folder / "clock"]) for name in "bc"[: count - 1]]
        wrong = {"PYTHONPATH": f"{folder / 'clock'}{os.pathsep}{ROOT}"} if fault is clock_off else {}
        scene = Scene(network, [first, *others], start_update(first, layout))
        waits(first, scene.pipeline)
        joined = time.monotonic()
        for host in others:
            join(host, **wrong)
        rank = [trains_on(host, scene.pipeline) for host in others]
        join_s, began = [round(time.monotonic() - joined, 1)] * bool(rank), time.monotonic()
        fault(scene)
        code, told = finished(scene.pipeline)
        ended_s = time.monotonic() - began
        said = [line for line in told.splitlines() if LABEL in line and not any(words in line for words in USUAL)]
        ended = code != 0 and len(said) == 1 and f"host {scene.last.name} " in said[0]
        as_it_should = ended if fault in ENDING else code == 0
        if code:
            scene.last.mend()
            as_it_should &= not layout.policy("i001").exists()
            if fault is host_killed:
                join(network.host("d"))
            code, _ = finished(start_update(first, layout))
        same = code == 0 and digest(layout.policy("i001")) == expected
    finally:
        network.close()
    shutil.rmtree(folder)
    return {
        "fault": fault.__name__,
        "hosts": count,
        "passed": same and as_it_should,
        "same_bytes": same,
        "join_s": join_s,
        "seconds": round(ended_s, 1),
        "said": said,
    }


def none(scene: Scene) -> None:
    """Let the update be."""


def link_cut(scene: Scene) -> None:
    """Cut the link for good."""
    scene.last.cut()


def link_cut_for_ten_seconds(scene: Scene) -> None:
    """Cut the link and mend it."""
    scene.last.cut()
    time.sleep(10)
    scene.last.mend()


def host_killed(scene: Scene) -> None:
    """Kill every process of the host."""
    os.kill(scene.last.holder, signal.SIGKILL)


def rank_killed(scene: Scene) -> None:
    """Kill the host's rank."""
    os.kill(trains_on(scene.last, scene.pipeline), signal.SIGKILL)


def clock_off(scene: Scene) -> None:
    """Let the update be: the clocks of the hosts that joined, as Python sees them, are an hour ahead."""


def link_slow(scene: Scene) -> None:
    """Let a megabit a second through to the host."""
    scene.last.slow("1mbit")


ENDING = (link_cut, host_killed, rank_killed)
"""Faults that no update survives."""
FAULTS = (none, link_cut, link_cut_for_ten_seconds, host_killed, rank_killed, clock_off, link_slow)


if __name__ == "__main__":
    main()
