"""Host drills: disturb work of one, two and three hosts, and compare what it comes to with one process's bytes.

    python -m tests.benchmarks.host_drills [--of rollouts] [--hosts 2 3] [--number 20] [--minutes 60]     as root

results/host_drills.json has the figures.

Each drill has hosts of its own (Linux namespaces on this machine), of which only the first has the project. The others
join it for an update, or play its rollouts through Ray. A drill passes if its fault ends the work or not, as it should;
if a fault that can be seen is told in one line that names the host, and no other is told at all; and if the policy or
the rollouts in the end, after a second run where the first had to fail, have the bytes of one host. `join_s` are the
seconds from the start of `loopline join`, for which the pipeline waits, until all ranks train; `named_s` those from the
fault to the line that names the host, and `seconds` those to the end.
"""

import argparse
import os
import re
import shutil
import signal
import statistics
import sys
import sysconfig
import tempfile
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from typing import Any

from tasks.core.records.files import digest
from tasks.core.records.layout import Layout
from tests.benchmarks.result_file import write_result
from tests.hosts.drilled import Rollouts, Update, Work
from tests.hosts.faults import Fault, Scene, clock_off, host_killed
from tests.hosts.network import Host, Network
from tests.hosts.parts import MOST_S

WORK = {"update": Update, "rollouts": Rollouts}
HOSTS = (2, 3, 1)
HOUR_OFF = "import time\nreal = time.time\ntime.time = lambda: real() + 3600\n"


def main() -> None:
    """Drill each fault on each number of hosts in turn, and write what came out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--of", choices=WORK, default="update", help="what is disturbed")
    parser.add_argument("--number", type=int, default=20, help="drills")
    parser.add_argument("--hosts", type=int, nargs="+", default=HOSTS, help="how many, one number after the other")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin none after so long")
    parsed = parser.parse_args()
    warnings.simplefilter("ignore")
    began, found = time.monotonic(), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as folder:
        work = WORK[parsed.of](Path(folder))
        drills = cycle(
            [(fault, hosts) for hosts in parsed.hosts for fault in (work.faults if hosts > 1 else work.alone)]
        )
        for number, (fault, hosts) in zip(range(parsed.number), drills, strict=False):
            if time.monotonic() - began > 60 * parsed.minutes:
                break
            found.append(drilled(Path(folder) / str(number), work, fault, hosts))
            print(found[-1], file=sys.stderr, flush=True)
            write_result("host_drills", summary(found), quiet=True, part=parsed.of)


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of all drills."""
    passed = sum(drill["passed"] for drill in found)
    medians = {
        name: round(statistics.median(values), 1)
        for name in ("join_s", "named_s")
        if (values := [value for drill in found for value in drill.get(name, ())])
    }
    return {**medians, "drills": len(found), "passed": passed, "each": found}


def drilled(folder: Path, work: Work, fault: Fault, count: int) -> dict[str, Any]:
    """Make a fault on work of `count` hosts, do the work again where it ended; return what came out."""
    folder.mkdir()
    layout, network = work.prepared(folder / "project", count), Network(folder)
    try:
        hosts = hosts_on(network, layout, count, ahead=fault is clock_off)
        scene = Scene(hosts, work.begin(layout, hosts))
        figures = {} if fault in work.early else work.at_work(scene)
        with ThreadPoolExecutor() as pool:
            told = pool.submit(heard, scene)
            scene.happened_at = time.monotonic()
            fault(scene)
        said = [(when, line) for when, line in told.result() if not any(words in line for words in work.usual)]
        figures["seconds"] = round(time.monotonic() - scene.happened_at, 1)
        if ended := scene.pipeline.returncode != 0 and fault in work.ending:
            scene.last.mend()
            work.again(layout, hosts, network.host("d") if fault is host_killed else None)
        same = work.result(layout).exists() and digest(work.result(layout)) == work.expected(count)
    finally:
        network.close()
    shutil.rmtree(folder)
    return {
        "fault": fault.__name__,
        "hosts": count,
        "passed": same
        and ended == (fault in work.ending)
        and is_told(said, scene.last if fault in work.named else None),
        "same_bytes": same,
        **figures,
        "named_s": [round(when - scene.happened_at, 1) for when, _ in said] if fault in work.named else [],
        "said": [line for _, line in said],
    }


def hosts_on(network: Network, layout: Layout, count: int, *, ahead: bool) -> list[Host]:
    """Add hosts to a network, the first with the project; the last one's clock may be an hour ahead for Python."""
    clock = layout.root.with_name("clock")
    clock.mkdir()
    (clock / "sitecustomize.py").write_text(HOUR_OFF)
    hosts = [network.host("a", shared=[layout.root, clock])]
    hosts += [network.host(name, shared=[clock]) for name in "bc"[: count - 1]]
    if ahead:
        hosts[-1].add_files(clock, Path(sysconfig.get_path("purelib")))
    return hosts


def heard(scene: Scene) -> list[tuple[float, str]]:
    """Return the lines that the pipeline says until it ends, and when; after too long its host is killed."""
    late = threading.Timer(MOST_S, os.kill, (scene.hosts[0].holder, signal.SIGKILL))
    late.start()
    assert scene.pipeline.stderr is not None
    told = [(time.monotonic(), line) for lines in scene.pipeline.stderr for line in lines.splitlines() if line.strip()]
    late.cancel()
    scene.pipeline.communicate()
    return told


def is_told(said: list[tuple[float, str]], host: Host | None) -> bool:
    """Return whether one line names `host`, or, where there is none to name, there is no line."""
    return not said if host is None else len(said) == 1 and re.search(rf"\b{host.name} \(", said[0][1]) is not None


if __name__ == "__main__":
    main()
