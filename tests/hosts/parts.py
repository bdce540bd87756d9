"""The parts of a test on hosts: Ray's machines, projects with an update or rollouts to make, and who is at work."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psutil

from tasks.core.records.files import digest
from tasks.core.records.layout import Layout
from tests.core.learner.conftest import _rollouts
from tests.flows.tiny_project import ROOT, configure, environment, succeed
from tests.hosts.network import Host
from tests.tiny_models import tiny_qwen2
from tests.update_policy.test_update_policy import make_params, prepare

T = TypeVar("T")
QUIET = {"TORCH_CPP_LOG_LEVEL": "ERROR"}
"""As every command sets it."""
ADDRESS = "10.77.0.1:6379"
RAY = str(Path(sys.executable).with_name("ray"))
ON_HOSTS = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
COLLECT = ("-m", "flows.stage", "collect_rollouts", "i001")
STORE_BYTES = 80_000_000
MOST_S = 400
STEPS = 300
"""Optimizer steps: enough time for a fault."""


def head(host: Host, cpus: int, *arguments: str) -> None:
    """Start a cluster on the pipeline's machine, whose workers and ranks take so many of its processors."""
    _start(host, cpus, "--head", "--port=6379", "--include-dashboard=false", *arguments)


def member(host: Host) -> None:
    """Add a machine with one processor to the cluster."""
    _start(host, 1, f"--address={ADDRESS}")


def _start(host: Host, cpus: int, *arguments: str) -> None:
    """Start Ray on a host, again where it gave up: after 30 s, too few on a busy machine."""
    options = [f"--num-cpus={cpus}", f"--node-ip-address={host.address}", f"--object-store-memory={STORE_BYTES}"]
    for _ in range(3):
        said = host.run(Path("/"), RAY, "start", *arguments, *options, timeout=200, **ON_HOSTS)
        if "Ray runtime started" in said:
            return
        host.run(Path("/"), RAY, "stop", "--force", timeout=200, **ON_HOSTS)
    raise AssertionError(said)


def make_update(folder: Path, *, ranks: int = 1, nodes: int = 2, address: str = ADDRESS) -> Layout:
    """Make a project in which update_policy@i001 is next, with `ranks` on each of `nodes` machines."""
    params = make_params(
        tokens_per_pack=40,
        epochs=STEPS // 3,
        kl_stop={"limit": 1e6},
        distributed={"ranks": ranks, "nodes": nodes},
        cluster=address if nodes > 1 else None,
    )
    base = folder.with_name(f"{folder.name}.base")
    tiny_qwen2(vocab_size=32, num_attention_heads=4, tie_word_embeddings=True, initializer_range=0.3).save_pretrained(
        base
    )
    layout = prepare(folder, base, params, {"i001": _rollouts(11)})
    (folder / "params.json").write_text(params.model_dump_json())
    return layout


def on_one_host(folder: Path, ranks: int) -> str:
    """Return the digest of the policy that so many ranks of one host train."""
    layout = make_update(folder / "one", ranks=ranks, nodes=1)
    command = [sys.executable, "-m", "tests.hosts.one_update", str(layout.root)]
    subprocess.run(command, check=True, cwd=layout.root, env={**os.environ, "PYTHONPATH": str(ROOT), **QUIET})
    return digest(layout.policy("i001"))


def start_update(host: Host, layout: Layout, **variables: str) -> "subprocess.Popen[str]":
    """Start the pipeline's side on the host that has the project."""
    command = (sys.executable, "-m", "tests.hosts.one_update", str(layout.root))
    return host.start(layout.root, *command, **environment(ROOT, **{**ON_HOSTS, **QUIET, **variables}))


def play_on_ray(project: Path, *settings: str) -> None:
    """Set a project's rollouts to be played by the cluster, in two shards unless `settings` say otherwise."""
    configure(project, "--refresh", "collection.shards=2", f"machines.ray.address='{ADDRESS}'", *settings)
    succeed(project, "-m", "flows.stage", "version_stages")  # which records the settings for other stages


def start_collection(host: Host, project: Path) -> "subprocess.Popen[str]":
    """Start the stage that collects rollouts on the host that has the project."""
    return host.start(project, sys.executable, *COLLECT, **environment(project, **ON_HOSTS))


def finished(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Return a process's exit code and what it said on stderr."""
    _, said = process.communicate(timeout=MOST_S)
    return process.returncode, said


def said_until(process: "subprocess.Popen[str]", words: str | None) -> str:
    """Return what a process says until a line has these words, or until its end."""
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if words is not None and words in line:
            return said
    assert words is None, said
    return said


def processes(host: Host, *command: str) -> list[psutil.Process]:
    """Return the processes of a host whose command has these words in it."""
    space, found = Path(f"/proc/{host.holder}/ns/pid").readlink(), []
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if Path(f"/proc/{process.pid}/ns/pid").readlink() == space and set(command) <= set(process.cmdline()):
                found.append(process)
    return found


def plays_on(host: Host, pipeline: "subprocess.Popen[str]") -> int:
    """Wait until a worker plays a shard on a host: it has agents' processes under it; return its process."""

    def player() -> int | None:
        players = processes(host, "ray::play_shard")
        return next((one.pid for one in players if len(one.children(recursive=True)) > 1), None)

    return awaited(player, pipeline)


def trains_on(host: Host, main: Host, pipeline: "subprocess.Popen[str]") -> int:
    """Wait until the rank on a host is connected to the main one; return its process."""

    def rank() -> int | None:
        there, first = processes(host, "ray::Rank.run"), processes(main, "ray::Rank.run")
        ends = {(theirs, ours) for one in first for ours, theirs in _connections(one.pid)}
        return next((one.pid for one in there if _connections(one.pid) & ends), None)

    return awaited(rank, pipeline)


def awaited(found: Callable[[], T | None], pipeline: "subprocess.Popen[str] | None" = None) -> T:
    """Return what is found, as soon as it is."""
    deadline = time.monotonic() + MOST_S
    while time.monotonic() < deadline:
        if (one := found()) is not None:
            return one
        assert pipeline is None or pipeline.poll() is None, pipeline.communicate()[1]
        time.sleep(0.02)
    raise AssertionError("in vain")


def _connections(process: int) -> set[tuple[str, str]]:
    """Return the ends of a process's connections, its own first."""
    with suppress(OSError):
        tables = [Path(f"/proc/{process}/net/{name}").read_text() for name in ("tcp", "tcp6")]
        lines = [line.split() for table in tables for line in table.splitlines()[1:]]
        own = {str(link.readlink()) for link in Path(f"/proc/{process}/fd").iterdir() if link.is_symlink()}
        return {(one[1], one[2]) for one in lines if one[3] == "01" and f"socket:[{one[9]}]" in own}
    return set()
