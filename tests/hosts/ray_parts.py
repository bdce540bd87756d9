"""The parts of a test of rollouts through Ray on hosts: the cluster's machines, the pipeline, and who plays."""

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psutil

from tests.flows.tiny_project import configure, environment, succeed
from tests.hosts.network import Host
from tests.hosts.parts import MOST_S, inside

T = TypeVar("T")
ADDRESS = "10.77.0.1:6379"
RAY = str(Path(sys.executable).with_name("ray"))
ON_HOSTS = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
COLLECT = ("-m", "flows.stage", "collect_rollouts", "i001")
STORE_BYTES = 80_000_000


def head(host: Host, cpus: int, *arguments: str, **variables: str) -> None:
    """Start a cluster on the pipeline's machine, whose workers take so many of its processors."""
    _start(host, cpus, "--head", "--port=6379", "--include-dashboard=false", *arguments, **variables)


def members(hosts: Sequence[Host], cpus: int = 1) -> None:
    """Add machines to the cluster, all at once."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda host: _start(host, cpus, f"--address={ADDRESS}"), hosts))


def play_on_ray(project: Path, *settings: str) -> None:
    """Set a project's rollouts to be played by the cluster, in two shards unless `settings` say otherwise."""
    configure(project, "--refresh", "collection.shards=2", f"machines.ray.address='{ADDRESS}'", *settings)
    succeed(project, "-m", "flows.stage", "version_stages")  # which records the settings for other stages


def start_collection(host: Host, project: Path, **variables: str) -> "subprocess.Popen[str]":
    """Start the stage that collects rollouts on the host that has the project."""
    return host.start(project, sys.executable, *COLLECT, **environment(project, **ON_HOSTS, **variables))


def player_on(host: Host) -> int | None:
    """Return a worker that plays a shard on a host: it has agents' processes under it."""
    for process in inside(host):
        with suppress(psutil.Error):
            if process.cmdline()[:1] == ["ray::play_shard"] and len(process.children(recursive=True)) > 1:
                return process.pid
    return None


def plays_on(host: Host, pipeline: "subprocess.Popen[str]") -> int:
    """Wait until a worker plays on a host; return its process."""
    return _awaited(lambda: player_on(host), pipeline)


def is_sent_files(host: Host, pipeline: "subprocess.Popen[str]") -> None:
    """Wait until a file is on its way to a host."""
    files = Path(f"/proc/{host.holder}/root/root/.cache/loopline/received/files")
    _awaited(lambda: next(files.glob("*.part"), None), pipeline)


def _awaited(found: Callable[[], T | None], pipeline: "subprocess.Popen[str]") -> T:
    deadline = time.monotonic() + MOST_S
    while time.monotonic() < deadline:
        if (one := found()) is not None:
            return one
        assert pipeline.poll() is None, pipeline.communicate()[1]
        time.sleep(0.02)
    raise AssertionError("in vain")


def _start(host: Host, cpus: int, *arguments: str, **variables: str) -> None:
    """Start Ray on a host, again where it gave up: after 30 s, too few on a busy machine."""
    options = [f"--num-cpus={cpus}", f"--node-ip-address={host.address}"]
    if not any(argument.startswith("--object-store-memory") for argument in arguments):
        options.append(f"--object-store-memory={STORE_BYTES}")
    for _ in range(3):
        said = host.run(Path("/"), RAY, "start", *arguments, *options, timeout=200, **ON_HOSTS, **variables)
        if "Ray runtime started" in said:
            return
        host.run(Path("/"), RAY, "stop", "--force", timeout=200, **ON_HOSTS)
    raise AssertionError(said)
