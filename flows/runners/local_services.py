"""Server, worker and deployments of one checkout, kept running until the command that serves them ends.

Everything they know lies in .prefect/. Imports Prefect: import this module late.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import yaml
from cronsim import CronSim
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import StateType
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Crashed

from flows.runners.prefect_server import (
    QUIET,
    ServerError,
    api_url,
    require_free,
    start_server,
    stop,
    wait_until_healthy,
)
from tasks.core.processes.running import parent_death_signal

POOL = "local-process"
_PAUSED = "paused: start it on its page, or have `active: true` in prefect.yaml"
WORKER_LOG = Path(".prefect/worker.log")
WATCH_S = 1.0
RESTART_S = 5.0
STOP_RUNS_S = 20
SETTINGS = {
    **QUIET,
    "PREFECT_CLIENT_MAX_RETRIES": "5",  # a minute: longer than a server that died takes to be there again
    "PREFECT_WORKER_QUERY_SECONDS": "3",
    "PREFECT_WORKER_PREFETCH_SECONDS": "30",  # a run starts its process so early, and then waits for its time
    "PREFECT_WORKER_WEBSERVER_HOST": "127.0.0.1",
    "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "20",
}
UNFINISHED = (StateType.PENDING, StateType.RUNNING, StateType.CANCELLING)

Process = subprocess.Popen[bytes]


def server_settings(port: int) -> dict[str, str]:
    """Return the settings of the server on this port. Its UI would ask Prefect's default port for its data."""
    return {**SETTINGS, "PREFECT_SERVER_UI_API_URL": api_url(port)}


def serve(root: Path, port: int) -> None:
    """Serve until a signal ends it; a server or worker that dies is started again. Raises ServerError."""
    url = api_url(port)
    with _kept_alive(lambda: _started_server(port), stop) as watch_server, temporary_settings({PREFECT_API_URL: url}):
        _deploy(root, url)
        with _kept_alive(lambda: _started_worker(root, url), _stop_worker) as watch_worker:
            print(_welcome(port), flush=True)
            while True:
                time.sleep(WATCH_S)
                watch_server()
                watch_worker()


@contextmanager
def _kept_alive(start: Callable[[], Process], end: Callable[[Process], None]) -> Iterator[Callable[[], None]]:
    """Start a process; yields a function that starts it again if it has ended; in the end, ends it."""
    process = start()

    def watch() -> None:
        nonlocal process
        if (code := process.poll()) is not None:
            print(f"{_command(process)} ended with code {code}; starting it again", file=sys.stderr, flush=True)
            time.sleep(RESTART_S)
            process = start()

    try:
        yield watch
    finally:
        end(process)


def _command(process: Process) -> str:
    return " ".join(map(str, process.args)) if isinstance(process.args, list) else str(process.args)


def _started_server(port: int) -> Process:
    require_free(port)
    process = start_server(port, server_settings(port))
    try:
        wait_until_healthy(api_url(port), process)
    except BaseException:
        stop(process)
        raise
    return process


def _started_worker(root: Path, url: str) -> Process:
    close_orphans()
    with WORKER_LOG.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "prefect", "worker", "start", "--pool", POOL, "--name", "local"],
            cwd=root,
            env=_environment(root, url),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=_worker_signals(),
        )


def _worker_signals() -> Callable[[], None]:
    """It ends with this process, and by SIGINT, its own way to end, which a command in the background would ignore."""
    end_with_parent = parent_death_signal()

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        end_with_parent()

    return prepare


def close_orphans() -> None:
    """Mark as Crashed the runs that a worker left unfinished when it was killed. Call it while no worker runs."""
    states = FlowRunFilterState(type=FlowRunFilterStateType(any_=list(UNFINISHED)))
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(
            flow_run_filter=FlowRunFilter(state=states),
            work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[POOL])),
        ):
            client.set_flow_run_state(run.id, Crashed(message="its worker is gone; the next run resumes"), force=True)


def _deploy(root: Path, url: str) -> None:
    """Make the work pool and the deployments as prefect.yaml says. Raises ServerError."""
    pool = ("work-pool", "create", POOL, "--type", "process", "--overwrite")
    for arguments in (pool, ("--no-prompt", "deploy", "--all")):
        done = subprocess.run(
            [sys.executable, "-m", "prefect", *arguments],
            cwd=root,
            env=_environment(root, url),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise ServerError(f"`prefect {' '.join(arguments)}` failed:\n{done.stdout}{done.stderr}")


def _environment(root: Path, url: str) -> dict[str, str]:
    """Return variables with `PWD`, by which prefect.yaml finds the checkout, and its code before an installed copy."""
    path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, **SETTINGS, "PREFECT_API_URL": url, "PWD": str(root), "PYTHONPATH": path}


def _stop_worker(worker: Process) -> None:
    """End the worker and its flow runs, which tell the server, and leave what DVC has recorded."""
    runs = psutil.Process(worker.pid).children(recursive=True) if worker.poll() is None else []
    for process in (worker, *runs):
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, left = psutil.wait_procs(runs, STOP_RUNS_S)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    stop(worker)


def _welcome(port: int) -> str:
    return (
        f"Prefect's UI: http://127.0.0.1:{port}   logs: .prefect/*.log   Ctrl-C ends server, worker and runs\n"
        f"start one now: PREFECT_API_URL={api_url(port)} prefect deployment run nightly/local"
    )


def schedule_lines(path: Path) -> Iterator[str]:
    """Yield a line for each schedule of the prefect.yaml at `path`, and for each deployment that has none."""
    for deployment in yaml.safe_load(path.read_text(encoding="utf-8"))["deployments"]:
        flow = deployment["entrypoint"].rpartition(".")[2].replace("_", "-")
        events = [event for trigger in deployment.get("triggers", []) for event in trigger["expect"]]
        without = f"at each event {', '.join(events)}" if events else "on demand"
        for when in [*map(_in_words, deployment.get("schedules") or [])] or [without]:
            yield f"{flow}/{deployment['name']}: {when}"


def _in_words(schedule: Mapping[str, Any]) -> str:
    if "cron" in schedule:
        explained = CronSim(schedule["cron"], datetime.now(UTC)).explain()
        when = f"{explained[0].lower()}{explained[1:]}, {schedule.get('timezone', 'UTC')}"
    else:
        when = next(f"{kind} {schedule[kind]}" for kind in ("interval", "rrule") if kind in schedule)
    return when if schedule.get("active", True) else f"{when} ({_PAUSED})"
