"""An update whose ranks are on two hosts that share the project's folder, and no name service."""

import subprocess
import sys
from pathlib import Path

import pytest

from tasks.core.records.files import digest
from tasks.core.records.layout import Layout
from tests.flows.tiny_project import configure, copy_project, environment, make_project, succeed
from tests.hosts.network import Host, Network

pytestmark = pytest.mark.hosts
UPDATED = ("-m", "flows.cli", "run", "--without-prefect", "--until", "update_policy@i001")


@pytest.fixture(scope="module")
def on_one_host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project whose first policy was trained by two ranks of this machine."""
    project = make_project(tmp_path_factory.mktemp("one") / "project", "iterations=1", "update.distributed.ranks=2")
    succeed(project, *UPDATED)
    return project


def start(host: Host, project: Path, *arguments: str) -> "subprocess.Popen[str]":
    return host.start(project, sys.executable, *arguments, **environment(project))


@pytest.mark.parametrize("address", ["10.77.0.1", "[fd77::1]"])
def test_two_hosts_train_the_policy_of_one_though_their_names_mean_loopback(
    address: str, on_one_host: Path, network: Network, tmp_path: Path
) -> None:
    project = copy_project(on_one_host, tmp_path / "project")
    expected = digest(Layout(on_one_host).policy("i001"))
    distributed = {"ranks": 1, "nodes": 2, "rendezvous": f"'{address}:29400'"}
    configure(project, "--refresh", *(f"update.distributed.{knob}={value}" for knob, value in distributed.items()))
    a, b = (network.host(name, shared=[project], own_name="127.0.1.1") for name in "ab")
    joiner = start(b, project, "-m", "flows.cli", "join", str(project))
    pipeline = start(a, project, *UPDATED)
    _, said = pipeline.communicate(timeout=400)
    assert pipeline.returncode == 0, said
    assert digest(Layout(project).policy("i001")) == expected
    said = b.end(joiner)
    assert "update_policy@i001: joining with 1 ranks" in said and "Traceback" not in said
