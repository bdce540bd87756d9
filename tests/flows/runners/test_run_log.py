"""Logs and page of runs on real Prefect servers: what stages say is there, and on the console as without Prefect."""

import json
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import Log

from flows.runners.prefect_server import local_server
from tests.flows.test_experiments import runs
from tests.flows.tiny_project import make_project, run, succeed

TARGET = ("--until", "filter_tasks")
WARNS = """

_filter_tasks = filter_tasks


def filter_tasks(context):
    import logging
    import sys
    import threading

    _filter_tasks(context)
    print("half", "done", file=sys.stderr)
    thread = threading.Thread(target=logging.getLogger("tasks.filter_tasks").warning, args=["odd: %s", "a task"])
    thread.start()
    thread.join()
"""

pytestmark = pytest.mark.services


@pytest.fixture
def warning_project(tmp_path: Path) -> Path:
    """Make a project whose stage filter_tasks says a line on stderr, and warns from a thread of its own."""
    root = make_project(tmp_path / "project")
    with (root / "tasks/filter_tasks.py").open("a") as body:
        body.write(WARNS)
    return root


def logs_of(client: SyncPrefectClient, task: str) -> list[Log]:
    (run_id,) = [each.id for each in client.read_task_runs() if each.name == task]
    return [log for log in client.read_logs() if log.task_run_id == run_id]


def started(root: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    done = run(root, "-m", "flows.cli", "run", *TARGET, **environment)
    assert done.returncode == 0, done.stderr
    return done


def test_stages_say_their_lines_in_the_logs_of_their_runs_and_once_on_the_console(
    warning_project: Path, new_prefect_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefect_home = str(shutil.copytree(new_prefect_home, tmp_path / "home"))  # its logs are of this run alone
    monkeypatch.chdir(warning_project)
    monkeypatch.setenv("PREFECT_HOME", prefect_home)
    done = started(warning_project, PREFECT_HOME=prefect_home)  # on a server that ends with the run
    (summary,) = [line for line in done.stdout.splitlines() if line.startswith("filter_tasks: ")]
    assert [line for line in done.stderr.splitlines() if "half" in line] == ["half done"]
    assert done.stderr.count("odd: a task") == 1
    assert "Finished in state" not in done.stdout + done.stderr
    with local_server() as url:
        logs = logs_of(SyncPrefectClient(url), "filter_tasks")
    told = [(log.level, log.message) for log in sorted(logs, key=lambda log: log.timestamp)]
    assert told[:3] == [(20, summary), (20, "half done"), (30, "odd: a task")]
    assert told[3][1].startswith("Finished in state Completed")


def test_why_a_stage_failed_is_in_the_logs_and_no_traceback_on_the_console(
    warning_project: Path, prefect_url: str
) -> None:
    succeed(warning_project, "-m", "flows.cli", "configure", "--refresh", "--set", "tasks.denylist=[no_such_task]")
    done = run(warning_project, "-m", "flows.cli", "run", *TARGET, PREFECT_API_URL=prefect_url)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    failed = [log for log in SyncPrefectClient(prefect_url).read_logs() if "no_such_task" in log.message]
    assert any(log.level == 40 and log.task_run_id for log in failed)


def test_a_warning_is_in_the_log_a_table_of_prefect_and_a_tag_of_mlflow(tmp_path: Path, prefect_url: str) -> None:
    project = make_project(tmp_path / "project", "update.learning_rate=0.1", "update.max_grad_norm=100")
    done = run(project, "-m", "flows.cli", "run", "--until", "update_policy@i001", PREFECT_API_URL=prefect_url)
    assert done.returncode == 0, done.stderr
    assert "i001: sign of a collapse: large_update: kl_per_token is" in done.stderr
    with urllib.request.urlopen(f"{prefect_url}/artifacts/pipeline-warnings/latest", timeout=30) as answer:
        (row,) = [row for row in json.loads(json.load(answer)["data"]) if row["rule"] == "large_update"]
    assert row["iteration"] == 1 and row["evidence"] in done.stderr
    (recorded,) = runs(project)
    assert recorded.data.tags["warning.i001.large_update"] == row["evidence"]
    assert recorded.data.metrics["update/warnings"] >= 1
    assert not list((project / "data").glob("**/monitor*"))
