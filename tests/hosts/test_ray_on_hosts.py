"""Rollouts by Ray on a host that has the code and nothing of the project."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tasks.core.records.files import digest
from tasks.core.records.layout import Layout
from tests.flows.tiny_project import ROOT, copy_project, make_project, succeed
from tests.hosts.conftest import made_network
from tests.hosts.network import Host, Network
from tests.hosts.parts import STORE_BYTES, finished, head, member, play_on_ray, plays_on, said_until, start_collection

pytestmark = pytest.mark.hosts
COLLECTED = ("-m", "flows.cli", "run", "--without-prefect", "--until", "collect_rollouts@i001")


@pytest.fixture(scope="module")
def on_one_host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project whose first rollouts one process of this machine played."""
    project = make_project(
        tmp_path_factory.mktemp("one") / "project", "iterations=1", "collection.rollouts_per_task=12"
    )
    succeed(project, *COLLECTED)
    return project


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, Host, Path]]:
    """Yield the pipeline's host, one whose worker plays, and a folder that the first has, for projects.

    Ray's store on the first has 8 MB of disk to spill to.
    """
    folder = tmp_path_factory.mktemp("projects")
    with made_network(tmp_path_factory.mktemp("network")) as network:
        a, b = network.host("a", shared=[folder]), network.host("b")
        a.mount("/root/spill", megabytes=8)
        head(a, 0, "--object-spilling-directory=/root/spill")
        member(b)
        yield a, b, folder


def to_be_played(on_one_host: Path, folder: Path, *settings: str) -> Layout:
    """Return a project that is to play these rollouts again, on Ray."""
    layout = Layout(copy_project(on_one_host, folder))
    layout.rollouts("i001").unlink()
    play_on_ray(folder, *settings)
    return layout


def same_rollouts(layout: Layout, on_one_host: Path) -> bool:
    return layout.rollouts("i001").read_bytes() == Layout(on_one_host).rollouts("i001").read_bytes()


def test_a_host_without_the_project_plays_the_same_bytes(on_one_host: Path, cluster: tuple[Host, Host, Path]) -> None:
    a, b, folder = cluster
    layout = to_be_played(on_one_host, folder / "plays")
    assert "No such file" in b.run(Path("/"), "ls", str(layout.root))
    code, said = finished(start_collection(a, layout.root))
    assert code == 0, said
    assert same_rollouts(layout, on_one_host)
    received = b.run(Path("/root"), "find", ".cache/loopline/received/files", "-type", "f").split()
    needed = [layout.world, layout.base_policy, layout.policy("i000")]
    assert {digest(file) for folder in needed for file in folder.rglob("*") if file.is_file()} == {
        Path(name).name for name in received
    }


def test_a_store_that_is_full_is_one_line(on_one_host: Path, cluster: tuple[Host, Host, Path]) -> None:
    a, _, folder = cluster
    layout = to_be_played(on_one_host, folder / "large")
    pad(layout)
    code, said = finished(start_collection(a, layout.root))
    (told,) = said.splitlines()
    full = "collect_rollouts@i001: machines.ray: Ray's object store on a has no room for "
    assert code == 1 and told.startswith(f"{full}{layout.world}/padding, nor has its disk")
    assert "--object-store-memory" in told and "Nothing is lost: run again" in told
    assert not layout.rollouts("i001").exists()


def test_a_hosts_disk_that_is_full_is_one_line_with_its_name(
    on_one_host: Path, cluster: tuple[Host, Host, Path]
) -> None:
    a, b, folder = cluster
    layout = to_be_played(on_one_host, folder / "no_room")
    b.mount("/root/.cache", megabytes=1)
    code, said = finished(start_collection(a, layout.root))
    b.run(Path("/"), "umount", "--lazy", "/root/.cache")
    (told,) = said.splitlines()
    assert code == 1
    assert told == (
        "collect_rollouts@i001: host b: [Errno 28] No space left on device: '/root/.cache/loopline/received'"
    )


def pad(layout: Layout) -> None:
    """Add a file that Ray's store does not hold, as large models don't fit."""
    (layout.world / "padding").write_bytes(os.urandom(2 * STORE_BYTES))


def test_too_few_gpus_are_told_with_what_each_host_has(on_one_host: Path, cluster: tuple[Host, Host, Path]) -> None:
    a, _, folder = cluster
    few = ("machines.ray.wait_s=5", "machines.ray.gpus_per_worker=1")
    code, said = finished(start_collection(a, to_be_played(on_one_host, folder / "few", *few).root))
    assert code == 1 and "a worker needs 1 CPUs and 1 GPUs; no machine has them" in said
    assert "a (10.77.0.1): 0 CPUs and 0 GPUs" in said and "b (10.77.0.2): 1 CPUs and 0 GPUs" in said
    assert "Nothing is lost" in said and "Traceback" not in said


def test_a_host_with_other_code_is_refused_by_name(on_one_host: Path, cluster: tuple[Host, Host, Path]) -> None:
    a, _, folder = cluster
    layout = to_be_played(on_one_host, folder / "other_code")
    with (layout.root / "tasks" / "collect_rollouts.py").open("a") as code:
        code.write("# another commit\n")
    succeed(layout.root, "-m", "flows.stage", "version_stages")
    exit_code, said = finished(start_collection(a, layout.root))
    assert exit_code == 1
    assert f"host b: collect_rollouts: the code in {ROOT} is not the pipeline's" in said and "Traceback" not in said


def killed(host: Host) -> None:
    os.kill(host.holder, signal.SIGKILL)  # and with it every process of the host


@pytest.mark.parametrize(("fault", "most_s"), [(killed, 100), (Host.cut, 200)])  # by Ray's own defaults 420
def test_a_host_that_is_lost_at_work_is_named_and_another_goes_on(
    fault: Callable[[Host], None], most_s: float, on_one_host: Path, network: Network, tmp_path: Path
) -> None:
    layout = to_be_played(on_one_host, tmp_path / "project")
    pad(layout)
    a, b, c = network.host("a", shared=[layout.root]), network.host("b"), network.host("c")
    head(a, 0)
    member(b)
    pipeline = start_collection(a, layout.root)
    plays_on(b, pipeline)
    assert "ray_spilled_objects" in a.run(Path("/tmp/ray"), "find", ".", "-type", "f")
    fault(b)
    lost_at = time.monotonic()
    said = said_until(pipeline, "no machine has them (b (10.77.0.2): lost, a (10.77.0.1): 0 CPUs and 0 GPUs)")
    member(c)
    if "its worker died" not in said:
        said += said_until(pipeline, "its worker died on b (10.77.0.2)")
    assert time.monotonic() - lost_at < most_s
    said += said_until(pipeline, None)
    assert pipeline.wait() == 0, said
    assert "going on with c (10.77.0.3)" in said
    assert same_rollouts(layout, on_one_host)
