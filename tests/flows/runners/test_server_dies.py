"""A warm flow whose Prefect server is killed during the run."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.flows.tiny_project import make_project, succeed

DVC_YAML = """\
stages:
  prepare_world:
    cmd: python -m flows.stage prepare_world
    params: [world, seed]
    outs: [data/world]
  the_server_dies:
    cmd: python kill_server.py
    deps: [data/world]
    outs: [data/killed]
  filter_tasks:
    cmd: python -m flows.stage filter_tasks
    deps: [data/world, data/killed]
    params: [tasks, seed]
    outs: [data/tasks]
"""
KILL_SERVER = """\
import pathlib, psutil
flow = next(one for one in psutil.Process().parents() if "flows.cli" in one.cmdline())
(server,) = [child for child in flow.children() if "flows.runners.prefect_server" in child.cmdline()]
server.kill()
pathlib.Path("data/killed").write_text("yes")
"""


Python = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def flow(tmp_path: Path, python_in: Callable[[Path], Python]) -> Python:
    """Return a function that runs Python in a project of three stages, the second of which kills the server."""
    root = make_project(tmp_path / "project")
    succeed(root, "-m", "flows.stage", "version_stages")
    (root / "dvc.yaml").write_text(DVC_YAML)
    (root / "kill_server.py").write_text(KILL_SERVER)
    return python_in(root)


@pytest.mark.faults
def test_a_run_goes_on_without_its_server(flow: Python) -> None:
    run = flow("-m", "flows.cli", "run", PREFECT_CLIENT_MAX_RETRIES="1")
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1].startswith("2 run, "), "and one that is no task"
    assert run.stderr.count("the Prefect server does not answer") == 1
    assert run.stderr.count("the Prefect server does not know how the run ended") == 1
    assert "Traceback" not in run.stderr
    assert flow("-m", "dvc", "status").stdout == "Data and pipelines are up to date.\n"


@pytest.mark.faults
def test_a_stage_that_fails_without_the_server_is_still_the_message(flow: Python) -> None:
    flow("-m", "flows.cli", "configure", "--refresh", "--set", "tasks.denylist=[no_such_task]").check_returncode()
    flow("-m", "flows.stage", "version_stages").check_returncode()
    run = flow("-m", "flows.cli", "run", PREFECT_CLIENT_MAX_RETRIES="1")
    assert run.returncode == 1
    assert "no_such_task" in run.stderr.splitlines()[-1]
    assert "Traceback" not in run.stderr
