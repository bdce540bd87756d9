"""An update on hosts of which only the pipeline's has the project: the bytes of one host, whatever happens to another.

The faults come one after another, each to the next attempt at the same update.
"""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tasks.core.records.files import digest
from tasks.core.records.layout import Layout
from tests.flows.tiny_project import ROOT
from tests.hosts.network import Network
from tests.hosts.parts import (
    awaited,
    finished,
    head,
    make_update,
    member,
    on_one_host,
    processes,
    said_until,
    start_update,
    trains_on,
)

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(1200)]
LABEL = "update_policy@i001"
LOST = "rank 1 of 2 is lost: the machine is down, or its link is cut; nothing was saved, run the same command again"
KILLED = "was killed (the system kills processes when memory runs out); nothing was saved, run the same command again"


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the digest of the policy that as many ranks of one host train."""
    return on_one_host(tmp_path_factory.mktemp("one"), 2)


def trained(layout: Layout, pipeline: "subprocess.Popen[str]") -> str:
    """Return the digest of the policy that an update comes to, and remove it."""
    code, said = finished(pipeline)
    assert code == 0, said
    found = digest(layout.policy("i001"))
    shutil.rmtree(layout.policy("i001"))
    layout.metrics("i001").unlink()
    layout.update_timings("i001").unlink()
    return found


def ended(layout: Layout, pipeline: "subprocess.Popen[str]", *words: str) -> None:
    """Check that an update ends in one line with these words, and leaves nothing."""
    code, said = finished(pipeline)
    last = said.splitlines()[-1].removeprefix(f"{LABEL}: ")
    assert (code, last) == (1, " ".join(words)) and "Traceback" not in said, said
    left = sorted(file.name for file in layout.iteration("i001").iterdir())
    assert left == ["advantages.json", "training_batch.parquet"]


def test_whatever_happens_to_a_host_is_told_and_the_next_update_has_the_bytes_of_one(
    expected: str, network: Network, tmp_path: Path
) -> None:
    layout = make_update(tmp_path / "project")
    a, b = network.host("a", shared=[layout.root], own_name="127.0.1.1"), network.host("b", own_name="127.0.1.1")
    assert "No such file" in b.run(Path("/"), "ls", str(layout.root))
    head(a, 1)
    member(b)

    pipeline = start_update(a, layout)
    os.kill(trains_on(b, a, pipeline), signal.SIGKILL)
    ended(layout, pipeline, "host b (10.77.0.2): rank 1 of 2", KILLED)

    pipeline = start_update(a, layout)
    trains_on(b, a, pipeline)
    processes(a, "ray::Rank.run")[0].kill()
    ended(layout, pipeline, "host a (10.77.0.1): rank 0 of 2", KILLED)

    b.slow("1mbit")
    pipeline = start_update(a, layout)
    trains_on(b, a, pipeline)
    b.cut()
    time.sleep(10)
    b.mend()
    assert trained(layout, pipeline) == expected

    pipeline = start_update(a, layout)
    trains_on(b, a, pipeline)
    processes(a, "tests.hosts.one_update")[0].kill()
    pipeline.communicate()
    awaited(lambda: not (processes(a, "ray::Rank.run") or processes(b, "ray::Rank.run")) or None)

    pipeline = start_update(a, layout)
    trains_on(b, a, pipeline)
    b.cut()
    ended(layout, pipeline, "host b (10.77.0.2):", LOST)

    c = network.host("c")
    pipeline = start_update(a, layout)
    assert "2 machines with 1 CPUs and 0 GPUs each (b (10.77.0.2): lost, a (10.77.0.1)" in said_until(
        pipeline, "Waiting"
    )
    member(c)
    assert trained(layout, pipeline) == expected

    pipeline = start_update(a, layout)
    trains_on(c, a, pipeline)
    os.kill(c.holder, signal.SIGKILL)  # and with it every process of the host
    ended(layout, pipeline, "host c (10.77.0.3):", LOST)


def test_a_host_with_other_code_is_refused_by_name(network: Network, tmp_path: Path) -> None:
    layout, code = make_update(tmp_path / "project"), tmp_path / "code"
    for name in ("flows", "tasks", "tests"):
        shutil.copytree(ROOT / name, code / name, ignore=shutil.ignore_patterns("__pycache__"))
    with (code / "tasks" / "core" / "learner" / "objective.py").open("a") as file:
        file.write("# another commit\n")
    a, b = network.host("a", shared=[layout.root, code]), network.host("b")
    head(a, 1)
    member(b)
    pipeline = start_update(a, layout, PYTHONPATH=str(code))
    ended(
        layout,
        pipeline,
        f"host b: update_policy: the code in {ROOT} is not the pipeline's; bring both to the same commit",
    )
