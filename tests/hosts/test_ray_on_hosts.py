"""Rollouts by Ray on a host that has the code and nothing of the project."""

import hashlib
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tasks.core.records.files import digest
from tasks.core.records.layout import Layout
from tests.flows.tiny_project import ROOT, configure, copy_project, environment, make_project, succeed
from tests.hosts.network import Host, Network

pytestmark = pytest.mark.hosts
COLLECTED = ("-m", "flows.cli", "run", "--without-prefect", "--until", "collect_rollouts@i001")
RAY = str(Path(sys.executable).with_name("ray"))
ON_HOSTS = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}


@pytest.fixture(scope="module")
def on_one_host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project whose first rollouts one process of this machine played."""
    project = make_project(tmp_path_factory.mktemp("one") / "project", "iterations=1")
    succeed(project, *COLLECTED)
    return project


def node(host: Host, cpus: int, *arguments: str) -> None:
    """Start Ray on a host, again where it gave up: after 30 s, too few on a busy machine."""
    options = [f"--num-cpus={cpus}", f"--node-ip-address={host.address}", "--object-store-memory=80000000"]
    for _ in range(3):
        said = host.run(Path("/"), RAY, "start", *arguments, *options, timeout=200, **ON_HOSTS)
        if "Ray runtime started" in said:
            return
        host.run(Path("/"), RAY, "stop", "--force", timeout=200, **ON_HOSTS)
    raise AssertionError(said)


def forget(project: Path, file: Path) -> None:
    """Remove an output, from DVC's cache too, so that its stage has to run again."""
    name = hashlib.md5(file.read_bytes()).hexdigest()
    file.unlink()
    (project / ".dvc" / "cache" / "files" / "md5" / name[:2] / name[2:]).unlink()
    shutil.rmtree(project / ".dvc" / "cache" / "runs")


def played_now() -> bool:
    """Return whether a worker on some host is busy with a shard."""
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess):
            if process.cmdline()[:1] == ["ray::play_shard"]:
                return True
    return False


def collect(host: Host, project: Path) -> tuple[int, str]:
    """Run collection on a host; return its exit code and what it said."""
    started = host.start(project, sys.executable, *COLLECTED, **environment(project, **ON_HOSTS))
    _, said = started.communicate(timeout=500)
    return started.returncode, said


def test_a_host_without_the_project_plays_the_same_bytes_and_a_lost_one_is_told(
    on_one_host: Path, network: Network, tmp_path: Path
) -> None:
    project = copy_project(on_one_host, tmp_path / "project")
    rollouts = Layout(project).rollouts("i001")
    expected = rollouts.read_bytes()
    forget(project, rollouts)
    settings = ("collection.shards=2", "machines.ray.wait_s=5", "machines.ray.address='10.77.0.1:6379'")
    configure(project, "--refresh", *settings)
    a, b = network.host("a", shared=[project]), network.host("b")
    node(a, 0, "--head", "--port=6379", "--include-dashboard=false")
    code, said = collect(a, project)
    assert code == 1 and "a worker needs 1 CPUs and 0 GPUs; no machine has them (a (10.77.0.1): 0 CPUs" in said
    assert "Nothing is lost" in said and "Traceback" not in said
    node(b, 1, "--address=10.77.0.1:6379")
    assert "No such file" in b.run(Path("/"), "ls", str(project))
    code, said = collect(a, project)
    assert code == 0, said
    assert rollouts.read_bytes() == expected
    received = b.run(Path("/root"), "find", ".cache/loopline/received/files", "-type", "f").split()
    needed = [Layout(project).world, Layout(project).base_policy, Layout(project).policy("i000")]
    assert {digest(file) for folder in needed for file in folder.rglob("*") if file.is_file()} == {
        Path(name).name for name in received
    }


def test_a_host_that_dies_at_work_is_named_and_another_goes_on(
    on_one_host: Path, network: Network, tmp_path: Path
) -> None:
    project = copy_project(on_one_host, tmp_path / "project")
    rollouts = Layout(project).rollouts("i001")
    expected = rollouts.read_bytes()
    forget(project, rollouts)
    configure(project, "--refresh", "collection.shards=2", "machines.ray.address='10.77.0.1:6379'")
    a, b, c = network.host("a", shared=[project]), network.host("b"), network.host("c")
    node(a, 0, "--head", "--port=6379", "--include-dashboard=false")
    node(b, 1, "--address=10.77.0.1:6379")
    pipeline = a.start(project, sys.executable, *COLLECTED, **environment(project, **ON_HOSTS))
    assert pipeline.stderr is not None
    while not played_now():
        assert pipeline.poll() is None, pipeline.stderr.read()
        time.sleep(0.05)
    os.kill(b.holder, signal.SIGKILL)  # and with it every process of the host
    said = []
    for line in pipeline.stderr:
        said.append(line)
        if "no machine has them" in line:
            break
    node(c, 1, "--address=10.77.0.1:6379")
    _, rest = pipeline.communicate(timeout=400)
    told = "".join(said) + rest
    assert pipeline.returncode == 0, told
    assert "no machine has them (b (10.77.0.2): lost, a (10.77.0.1): 0 CPUs and 0 GPUs)" in told
    assert "its worker died on b (10.77.0.2)" in told and "going on with c (10.77.0.3)" in told
    assert rollouts.read_bytes() == expected


def test_a_link_that_is_cut_at_work_is_noticed_in_minutes_and_another_host_goes_on(
    on_one_host: Path, network: Network, tmp_path: Path
) -> None:
    project = copy_project(on_one_host, tmp_path / "project")
    rollouts = Layout(project).rollouts("i001")
    expected = rollouts.read_bytes()
    forget(project, rollouts)
    configure(project, "--refresh", "collection.shards=2", "machines.ray.address='10.77.0.1:6379'")
    a, b, c = network.host("a", shared=[project]), network.host("b"), network.host("c")
    node(a, 0, "--head", "--port=6379", "--include-dashboard=false")
    node(b, 1, "--address=10.77.0.1:6379")
    pipeline = a.start(project, sys.executable, *COLLECTED, **environment(project, **ON_HOSTS))
    assert pipeline.stderr is not None
    while not played_now():
        assert pipeline.poll() is None, pipeline.stderr.read()
        time.sleep(0.05)
    b.cut()
    cut = time.monotonic()
    node(c, 1, "--address=10.77.0.1:6379")
    said = ""
    while "its worker died on b (10.77.0.2)" not in said:
        line = pipeline.stderr.readline()
        assert line, said
        said += line
    assert time.monotonic() - cut < 200  # by Ray's own defaults 420
    _, rest = pipeline.communicate(timeout=400)
    assert pipeline.returncode == 0, said + rest
    assert rollouts.read_bytes() == expected


def test_a_host_with_other_code_is_refused_by_name(on_one_host: Path, network: Network, tmp_path: Path) -> None:
    project = copy_project(on_one_host, tmp_path / "project")
    with (project / "tasks" / "collect_rollouts.py").open("a") as code:
        code.write("# another commit\n")
    configure(project, "--refresh", "collection.shards=2", "machines.ray.address='10.77.0.1:6379'")
    a, b = network.host("a", shared=[project]), network.host("b")
    node(a, 0, "--head", "--port=6379", "--include-dashboard=false")
    node(b, 1, "--address=10.77.0.1:6379")
    exit_code, said = collect(a, project)
    assert exit_code == 1
    assert f"host b: collect_rollouts: the code in {ROOT} is not the pipeline's" in said and "Traceback" not in said
