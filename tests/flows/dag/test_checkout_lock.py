"""One run at a time in a checkout."""

import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from flows.dag.checkout_lock import LOCK, CheckoutBusy, checkout_lock
from tasks.core.processes.running import find_process
from tests.flows.tiny_project import environment

HOLDER = """
import sys
from pathlib import Path
from flows.dag.checkout_lock import checkout_lock
with checkout_lock(Path(), "nightly"):
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_busy_checkout_names_its_holder(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(CheckoutBusy, match=rf"nightly \(process {holder.pid}\) works in this checkout"):
        checkout_lock(tmp_path, "other").__enter__()
    holder.kill()
    holder.wait()


def test_a_killed_holder_releases_the_checkout(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    with checkout_lock(tmp_path, "other"):
        assert "other" in (tmp_path / LOCK).read_text()


def test_waiting_ends_when_the_holder_does(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    told: list[str] = []

    def waiting(name: str) -> None:
        told.append(name)
        threading.Timer(0.1, holder.kill).start()

    with checkout_lock(tmp_path, "other", waiting):
        assert told == [f"nightly (process {holder.pid})"]
    holder.wait()


def test_between_two_stages_the_checkout_is_that_of_their_dvc(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    with subprocess.Popen(["sleep", "600"]) as dvc:
        with checkout_lock(tmp_path, "score@dev", dvc=find_process(dvc.pid)):
            pass
        with pytest.raises(CheckoutBusy, match=rf"dvc repro, at score@dev \(process {dvc.pid}\) works in this"):
            checkout_lock(tmp_path, "other").__enter__()
        with checkout_lock(tmp_path, "report", dvc=find_process(dvc.pid)):
            pass
        dvc.kill()
        dvc.wait()
        with checkout_lock(tmp_path, "other"):
            assert "other" in (tmp_path / LOCK).read_text()


def test_neither_runner_starts_in_a_busy_checkout(project: Path, python: Callable[..., CompletedProcess[str]]) -> None:
    with checkout_lock(project, "nightly"):
        for command in (["flows.cli", "run"], ["flows.stage", "prepare_world"]):
            done = python("-m", *command)
            assert done.returncode == 1
            assert "nightly (process" in done.stderr
            assert len(done.stderr.splitlines()) == 1


def test_a_warm_flow_that_may_wait_begins_when_the_holder_ends(project: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "flows.cli",
        "run",
        "--without-prefect",
        "--wait",
        "--until",
        "prepare_world",
    ]
    with checkout_lock(project, "nightly"):
        process = subprocess.Popen(
            command, cwd=project, env=environment(project), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        assert re.match(r"loopline run: waits for nightly \(process \d+\), which works", process.stderr.readline())
        assert not (project / "data/world").exists()
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert (project / "data/world").exists()
