"""A real Prefect server and worker: a schedule fires, a worker is killed, runs overlap."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
import yaml
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import FlowFilter, FlowFilterName, FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.schedules import IntervalSchedule
from prefect.states import Scheduled

from flows.dag.checkout_lock import LOCK
from flows.runners.local_services import schedule_lines
from tasks.core.processes.addresses import free_port
from tests.flows.tiny_project import digest_of, make_project

T = TypeVar("T")

pytestmark = pytest.mark.services


class Served:
    """A tiny project whose deployments are being served."""

    def __init__(self, root: Path, process: subprocess.Popen[str], url: str) -> None:
        self.root = root
        self.process = process
        self.client = SyncPrefectClient(url)

    def due_in(self, flow: str, seconds: float, **parameters: Any) -> FlowRun:
        deployment = self.client.read_deployment_by_name(f"{flow}/local")
        state = Scheduled(scheduled_time=datetime.now(UTC) + timedelta(seconds=seconds))
        return self.client.create_flow_run_from_deployment(deployment.id, parameters=parameters, state=state)

    def state(self, run: FlowRun) -> tuple[str, str]:
        state = self.client.read_flow_run(run.id).state
        assert state is not None
        return str(state.name), str(state.message)

    def tasks(self, run: FlowRun) -> dict[str, str]:
        chosen = FlowRunFilter(id=FlowRunFilterId(any_=[run.id]))
        return {task.name: str(task.state_name) for task in self.client.read_task_runs(flow_run_filter=chosen)}

    def ends(self, run: FlowRun, *names: str) -> None:
        """Wait for the final state of a run, and assert that it has one of these names."""
        until(lambda: self.client.read_flow_run(run.id), lambda read: read.state.is_final())
        assert self.state(run)[0] in names, self.state(run)

    def worker(self) -> int | None:
        """Return the worker's process id; None between its end and its next start."""
        for child in psutil.Process(self.process.pid).children():
            with suppress(psutil.NoSuchProcess):
                if "worker" in child.cmdline():
                    return child.pid
        return None


def until(read: Callable[[], T], holds: Callable[[T], bool], deadline_s: float = 240) -> T:
    """Poll `read` until its value fulfils `holds`; return the value."""
    deadline = time.monotonic() + deadline_s
    while not holds(value := read()):
        assert time.monotonic() < deadline, value
        time.sleep(0.2)
    return value


@contextmanager
def deployed(new_prefect_home: Path, root: Path) -> Iterator[tuple[Served, list[str]]]:
    """Run `loopline deploy` in a project; yields what it serves, and the lines that it printed before."""
    shutil.copytree(new_prefect_home, root / ".prefect")
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "flows.cli", "deploy", "--port", str(port)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "PREFECT_API_URL": "", "PREFECT_HOME": str(root / ".prefect")},
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background ignore it
    )
    assert process.stdout is not None
    lines = [*takewhile(lambda line: "Prefect's UI" not in line, process.stdout)]
    try:
        yield Served(root, process, f"http://127.0.0.1:{port}/api"), lines
    finally:
        if process.poll() is None:
            process.kill()


@pytest.fixture
def served(new_prefect_home: Path, tmp_path: Path) -> Iterator[Served]:
    root = make_project(tmp_path / "served")
    without_schedules(root / "prefect.yaml")
    with deployed(new_prefect_home, root) as (served, _):
        yield served


def without_schedules(path: Path) -> None:
    """Remove all schedules: the test sets its own times, and no nightly run may coincide with it."""
    content = yaml.safe_load(path.read_text())
    content["deployments"] = [{**each, "schedules": []} for each in content["deployments"]]
    path.write_text(yaml.safe_dump(content))


def test_schedules_kills_and_overlaps(served: Served, finished_project: Path) -> None:
    nightly = fires_on_schedule(served)

    until(lambda: (served.root / "data/stage_versions.json").exists(), bool)
    skipped = served.due_in("short-iteration", 0)
    served.ends(skipped, "Skipped")
    assert "nightly (process" in served.state(skipped)[1]

    until(lambda: served.tasks(nightly), lambda tasks: tasks.get("collect_rollouts@i001") is not None)
    worker = served.worker()
    assert worker is not None
    os.kill(worker, signal.SIGKILL)
    served.ends(nightly, "Crashed", "Failed")  # by the signal or by the worker's pipe, whichever comes first
    assert not (served.root / "data/lineage.json").exists()
    until(served.worker, lambda now: now not in (None, worker))

    resumed = served.due_in("nightly", 0)
    served.ends(resumed, "Completed")
    assert served.tasks(resumed)["prepare_world"] == "Skipped"
    assert served.tasks(resumed)["update_policy@i001"] == "Completed"
    assert digest_of(served.root) == digest_of(finished_project)

    told = events_are_noted(served)
    assert [text for text in told if text.startswith("short-iteration: ") and "nightly (process" in text]

    short = served.due_in("short-iteration", 0, iterations=1)
    until(lambda: (served.root / LOCK).read_text(), lambda text: "short-iteration" in text)
    waits = served.due_in("nightly", 0)
    until(lambda: served.state(waits)[0], lambda name: name == "Waiting")
    served.ends(short, "Completed")
    assert served.client.read_flow_run(short.id).name.startswith("short-iteration to i002")
    served.ends(waits, "Skipped")
    assert (served.root / "data/iterations/i002/policy").is_dir()

    ends_without_a_trace(served)


def test_deploy_lists_its_schedules_first_and_begins_no_hourly_run(new_prefect_home: Path, tmp_path: Path) -> None:
    root = make_project(tmp_path / "served")
    with deployed(new_prefect_home, root) as (served, printed):
        assert [line.rstrip() for line in printed] == [*schedule_lines(root / "prefect.yaml")]

        def due() -> set[str]:
            return {served.client.read_flow(run.flow_id).name for run in served.client.read_flow_runs()}

        assert until(due, {"nightly", "rescore-champion"}.__le__) == {"nightly", "rescore-champion"}
        ends_without_a_trace(served)


def events_are_noted(served: Served) -> list[str]:
    """Send an event from a process that ends at once, and wait for its note; return the texts of all notes."""
    text = "version 3 is the champion now"
    code = f"import pathlib, flows.runners.run_artifacts as e; e.tell('champion-changed', {text!r}, pathlib.Path.cwd())"
    variables = {**os.environ, "PYTHONPATH": str(served.root), "PREFECT_API_URL": str(served.client.api_url)}
    subprocess.run([sys.executable, "-c", code], cwd=served.root, env=variables, check=True, timeout=120)

    def notes() -> list[str]:
        named = FlowFilter(name=FlowFilterName(any_=["note"]))
        return [
            run.parameters["text"] for run in served.client.read_flow_runs(flow_filter=named) if run.state.is_final()
        ]

    return until(notes, lambda texts: text in texts)


def fires_on_schedule(served: Served) -> FlowRun:
    """Give the nightly deployment a schedule that is due soon, and return its run as soon as it has begun."""
    due = datetime.now(UTC) + timedelta(seconds=20)
    deployment = served.client.read_deployment_by_name("nightly/local")
    schedule = IntervalSchedule(interval=timedelta(minutes=5), anchor_date=due)
    made = served.client.create_deployment_schedules(deployment.id, [(schedule, True)])
    begun = until(lambda: [run for run in served.client.read_flow_runs() if run.start_time], bool, 600)[0]
    served.client.delete_deployment_schedule(deployment.id, made[0].id)
    assert begun.name.startswith("nightly 2")
    assert begun.expected_start_time is not None
    print(f"began {(begun.start_time - begun.expected_start_time).total_seconds():+.1f} s after it was due")
    return begun


def ends_without_a_trace(served: Served) -> None:
    family = psutil.Process(served.process.pid).children(recursive=True)
    served.process.send_signal(signal.SIGINT)
    assert served.process.wait(120) == 130
    _, left = psutil.wait_procs(family, 30)
    assert left == []
