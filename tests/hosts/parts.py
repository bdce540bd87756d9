"""The parts of a test of an update on hosts: the project, the pipeline's machine, those that join, their ranks."""

import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

from flows.workers.join_channel import SECRET_VARIABLE
from tasks.core.config.update import DistributedConfig
from tasks.core.learner.launcher import RANK_MODULE
from tasks.core.records.files import digest
from tasks.core.records.layout import Layout
from tests.core.learner.conftest import _rollouts
from tests.flows.tiny_project import ROOT, environment
from tests.hosts.network import Host
from tests.tiny_models import tiny_qwen2
from tests.update_policy.test_update_policy import make_params, prepare

SECRET = {SECRET_VARIABLE: "of these hosts"}
QUIET = {"TORCH_CPP_LOG_LEVEL": "ERROR"}
"""As every command sets it."""
RENDEZVOUS = "10.77.0.1:29400"
MOST_S = 400
STEPS = 60
"""Optimizer steps: enough time for a fault."""


def make_update(folder: Path, *, ranks: int = 1, nodes: int = 2) -> Layout:
    """Make a project in which update_policy@i001 is next, with `ranks` on each of `nodes` machines."""
    distributed = DistributedConfig.model_validate({"ranks": ranks, "nodes": nodes, "rendezvous": RENDEZVOUS})
    params = make_params(
        tokens_per_pack=40, epochs=STEPS // 3, kl_stop={"limit": 1e6}, distributed=distributed.model_dump()
    )
    model = tiny_qwen2(vocab_size=32, num_attention_heads=4, tie_word_embeddings=True, initializer_range=0.3)
    model.save_pretrained(folder.with_name(f"{folder.name}.base"))
    layout = prepare(folder, folder.with_name(f"{folder.name}.base"), params, {"i001": _rollouts(11)})
    (folder / "params.json").write_text(params.model_dump_json())
    return layout


def on_one_host(folder: Path, ranks: int) -> str:
    """Return the digest of the policy that so many ranks of one host train."""
    layout = make_update(folder / f"one_{ranks}", ranks=ranks, nodes=1)
    command = [sys.executable, "-m", "tests.hosts.one_update", str(layout.root)]
    subprocess.run(command, check=True, cwd=layout.root, env={**os.environ, "PYTHONPATH": str(ROOT), **QUIET})
    return digest(layout.policy("i001"))


def start_update(host: Host, layout: Layout, **variables: str) -> "subprocess.Popen[str]":
    """Start the pipeline's side on the host that has the project."""
    command = (sys.executable, "-m", "tests.hosts.one_update", str(layout.root))
    return host.start(layout.root, *command, **environment(ROOT, **{**SECRET, **QUIET, **variables}))


def join(host: Host, rendezvous: str = RENDEZVOUS, **variables: str) -> "subprocess.Popen[str]":
    """Start `loopline join` on another host."""
    command = (sys.executable, "-m", "flows.cli", "join", rendezvous)
    return host.start(Path("/"), *command, **environment(ROOT, **{**SECRET, **variables}))


def finished(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Return a process's exit code and what it said on stderr."""
    _, said = process.communicate(timeout=MOST_S)
    return process.returncode, said


def waits(host: Host, pipeline: "subprocess.Popen[str]") -> None:
    """Wait until the pipeline's host listens for those that join."""
    port = f":{int(RENDEZVOUS.rpartition(':')[2]):04X}"
    deadline = time.monotonic() + MOST_S
    while time.monotonic() < deadline:
        assert pipeline.poll() is None, finished(pipeline)[1]
        lines = [line.split() for line in Path(f"/proc/{host.holder}/net/tcp").read_text().splitlines()[1:]]
        if any(one[1].endswith(port) and one[3] == "0A" for one in lines):
            return
        time.sleep(0.05)
    raise AssertionError("the pipeline does not wait")


def inside(host: Host) -> list[psutil.Process]:
    """Return the processes of a host."""
    space, found = Path(f"/proc/{host.holder}/ns/pid").readlink(), []
    for process in psutil.process_iter():
        with suppress(OSError):
            if Path(f"/proc/{process.pid}/ns/pid").readlink() == space:
                found.append(process)
    return found


def rank_on(host: Host) -> int | None:
    """Return the process of the rank that trains on a host."""
    for process in inside(host):
        with suppress(psutil.Error):
            if RANK_MODULE in process.cmdline():
                return process.pid
    return None


def trains_on(host: Host, pipeline: "subprocess.Popen[str]") -> int:
    """Wait until a rank on a host has connected to the others; return its process."""
    deadline = time.monotonic() + MOST_S
    while time.monotonic() < deadline:
        assert pipeline.poll() is None, finished(pipeline)[1]
        rank = rank_on(host)
        if rank is not None and len(_to_others(rank)) >= 2:  # torch's store, and the other rank
            return rank
        time.sleep(0.05)
    raise AssertionError("no rank trains")


def _to_others(process: int) -> list[str]:
    """Return the remote ends of a process's connections, which leave its host."""
    with suppress(OSError):
        tables = [Path(f"/proc/{process}/net/{name}").read_text() for name in ("tcp", "tcp6")]
        own = {str(link.readlink()) for link in Path(f"/proc/{process}/fd").iterdir() if link.is_symlink()}
        lines = [line.split() for table in tables for line in table.splitlines()[1:]]
        return [one[2] for one in lines if one[3] == "01" and f"socket:[{one[9]}]" in own]
    return []


def lines_of(said: str) -> list[str]:
    """Return the lines of a log without their times."""
    return [re.sub(r"^\S+ \S+,\d+ ", "", line) for line in said.splitlines()]
