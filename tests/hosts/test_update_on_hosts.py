"""An update whose ranks are on hosts of which only the pipeline's has the project, without a name service."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.core.records.files import digest
from tasks.core.records.layout import Layout
from tests.flows.tiny_project import configure, copy_project, environment, make_project, succeed
from tests.hosts.network import Host, Network
from tests.hosts.parts import SECRET, finished, join

pytestmark = pytest.mark.hosts
RENDEZVOUS = "[fd77::1]:29400"
"""IPv6; the faults of an update are tried over IPv4 (test_faults_of_an_update.py)."""
UPDATED = ("-m", "flows.cli", "run", "--without-prefect", "--until", "update_policy@i001")


@pytest.fixture(scope="module")
def on_one_host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project whose first policy was trained by two ranks of this machine."""
    project = make_project(tmp_path_factory.mktemp("one") / "project", "iterations=1", "update.distributed.ranks=2")
    succeed(project, *UPDATED)
    return project


def for_two_hosts(on_one_host: Path, folder: Path, rendezvous: str) -> Path:
    copy_project(on_one_host, folder)
    distributed = {"ranks": 1, "nodes": 2, "rendezvous": f"'{rendezvous}'"}
    knobs = [f"update.distributed.{knob}={value}" for knob, value in distributed.items()]
    configure(folder, "--refresh", *knobs)
    return folder


def start(host: Host, project: Path) -> "subprocess.Popen[str]":
    """Start the pipeline on the host that has the project."""
    return host.start(project, sys.executable, *UPDATED, **environment(project, **SECRET))


def test_a_host_without_the_project_trains_the_policy_of_one_host(
    on_one_host: Path, network: Network, tmp_path: Path
) -> None:
    project = for_two_hosts(on_one_host, tmp_path / "project", RENDEZVOUS)
    a = network.host("a", shared=[project], own_name="127.0.1.1")
    b = network.host("b", own_name="127.0.1.1")
    assert "No such file" in b.run(Path("/"), "ls", str(project))
    joiner, pipeline = join(b, RENDEZVOUS), start(a, project)
    code, said = finished(pipeline)
    assert code == 0, said
    assert digest(Layout(project).policy("i001")) == digest(Layout(on_one_host).policy("i001"))
    assert re.search(r"update_policy@i001: training on a, b \(\S+\)\n", said) and "Traceback" not in said
    told = b.end(joiner)
    assert "preflight: done\n" in told and "update_policy@i001: done, the last update of the run\n" in told
    assert "Traceback" not in told
