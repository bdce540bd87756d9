"""The process that an own server lives and dies with: a real one, over processes that stand for one."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tasks.core.processes.running import find_process

CODE = Path(__file__).parents[4]
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
FAMILY = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {STUBBORN!r}]); time.sleep(600)"


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def owner() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that stands for the pipeline."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def kept(tmp_path: Path, owner: "subprocess.Popen[bytes]") -> Iterator[tuple[psutil.Process, list[psutil.Process]]]:
    """A real supervisor, and the two processes below it; the child of the two ignores SIGTERM, as workers may."""
    state = tmp_path / "state.json"
    launch = {
        "about": {},
        "state": str(state),
        "log": str(tmp_path / "log"),
        "command": [sys.executable, "-c", FAMILY],
        "variables": dict(os.environ),
        "owner": owner.pid,
        "owner_started": find_process(owner.pid).started,
    }
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "tasks.core.engines.vllm.supervisor"], cwd=CODE, stdin=subprocess.PIPE
    )
    assert supervisor.stdin is not None
    with supervisor.stdin as stdin:
        stdin.write(json.dumps(launch).encode())
    process = psutil.Process(supervisor.pid)
    until(lambda: state.exists() and len(process.children(recursive=True)) == 2)
    assert state.stat().st_mode & 0o077 == 0, "the key in it is nobody else's business"
    yield process, process.children(recursive=True)
    supervisor.kill()
    supervisor.wait()


def running(processes: list[psutil.Process]) -> bool:
    return any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in processes)


def test_servers_end_with_a_killed_pipeline(
    kept: tuple[psutil.Process, list[psutil.Process]], owner: "subprocess.Popen[bytes]"
) -> None:
    supervisor, servers = kept
    owner.kill()
    owner.wait()
    until(lambda: not running([supervisor, *servers]))


def test_a_servers_children_end_with_a_killed_server(kept: tuple[psutil.Process, list[psutil.Process]]) -> None:
    supervisor, servers = kept
    servers[0].kill()
    until(lambda: not running([supervisor, *servers]))


def test_a_supervisor_that_is_asked_to_end_leaves_nothing(kept: tuple[psutil.Process, list[psutil.Process]]) -> None:
    supervisor, servers = kept
    supervisor.terminate()
    until(lambda: not running([supervisor, *servers]))


def test_a_server_is_told_when_its_supervisor_is_killed(kept: tuple[psutil.Process, list[psutil.Process]]) -> None:
    supervisor, servers = kept
    try:
        supervisor.kill()
        until(lambda: not running(servers[:1]))
    finally:
        for one in servers[1:]:
            one.send_signal(signal.SIGKILL)
