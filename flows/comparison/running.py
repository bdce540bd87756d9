"""Run the runs of a study, some at a time, each in its workspace as the warm flow without Prefect."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from flows.comparison.plan import RunPlan
from flows.comparison.workspaces import Snapshot, WorkspaceError, make_workspace, save_experiment
from flows.params_file import params_text, write_params
from tasks.core.processes.running import parent_death_signal
from tasks.core.records.files import replacing

RUNNING = "running"
POLL_S = 1.0
PATIENCE_S = 60.0
"""How long a run may take to end after a SIGTERM; a stage may have to stop engines."""


@dataclass(frozen=True)
class MadeFrom:
    """The origin of a finished run, a small file in the workspace's .loopline folder."""

    code: str
    """As in `workspaces.Snapshot`."""
    params: str
    """SHA-256 of its params.yaml."""
    commit: str = field(compare=False)


def read_stamp(folder: Path) -> MadeFrom | None:
    """Return the origin of the workspace's finished run; None while it has none, or only one of an older format."""
    with suppress(FileNotFoundError, ValueError, TypeError):
        return MadeFrom(**json.loads(_stamp(folder).read_text(encoding="utf-8")))
    return None


def _stamp(folder: Path) -> Path:
    return folder / ".loopline" / "made_from"


@dataclass(frozen=True, eq=False)
class Place:
    """A run and its workspace."""

    plan: RunPlan
    folder: Path

    @property
    def log(self) -> Path:
        return self.folder / ".loopline" / "repro.log"

    @cached_property
    def params_digest(self) -> str:
        """SHA-256 of the params.yaml that `_prepare` writes. Raises ParamsError."""
        return sha256(params_text(self.plan.params).encode()).hexdigest()


def run_all(root: Path, places: Sequence[Place], snapshot: Snapshot, jobs: int, tracking: str) -> list[str]:
    """Bring every run to its end; those that ended in an earlier call stay as they are. Returns one line per failure.

    `tracking` is the MLflow store of all runs. A run that fails does not keep the others from running.
    Raises WorkspaceError and ParamsError before anything runs.
    """
    made_from = {place: _prepare(root, place, snapshot) for place in places}
    waiting = [place for place in places if read_stamp(place.folder) is None]
    failures, progress = [], Progress(len(places), len(places) - len(waiting))
    with _processes() as live:
        while waiting or live:
            while waiting and len(live) < jobs:
                place = waiting.pop(0)
                live[place] = _start(place, tracking)
                progress.tell(place, RUNNING)
            time.sleep(POLL_S)
            for place, process in list(live.items()):
                if process.poll() is not None:
                    del live[place]
                    failure = _finish(place, process.returncode, made_from[place])
                    failures += [failure] if failure else []
                    progress.tell(place, "failed" if failure else "done")
    return failures


class Progress:
    """Prints a line for each run that begins or ends, with how many have and how long the rest takes at this rate."""

    def __init__(self, runs: int, ended: int) -> None:
        self._runs, self._ended, self._before, self._began = runs, ended, ended, time.monotonic()

    def tell(self, place: Place, state: str) -> None:
        """Print the line of a run that has changed."""
        self._ended += state != RUNNING
        passed, gained = time.monotonic() - self._began, self._ended - self._before
        left = (
            f"about {passed / gained * (self._runs - self._ended) / 60:.0f} min left" if gained else "no estimate yet"
        )
        line = f"{place.plan.experiment}: {state}; {self._ended} of {self._runs} runs, {left}"
        print(line, file=sys.stderr, flush=True)


@contextmanager
def _processes() -> Iterator[dict[Place, "subprocess.Popen[bytes]"]]:
    """Yield a place for the runs at work; at the end of the block, however it ends, stop them and wait for them."""
    live: dict[Place, subprocess.Popen[bytes]] = {}
    try:
        yield live
    finally:
        for process in live.values():
            process.send_signal(signal.SIGTERM)
        for process in live.values():
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _prepare(root: Path, place: Place, snapshot: Snapshot) -> MadeFrom:
    """Make the workspace and its params.yaml. A finished run of other code or parameters is none any more."""
    make_workspace(root, place.folder, snapshot)
    write_params(place.folder / "params.yaml", place.plan.params)
    made_from = MadeFrom(snapshot.code, place.params_digest, snapshot.commit)
    if read_stamp(place.folder) != made_from:
        _stamp(place.folder).unlink(missing_ok=True)
    return made_from


def _start(place: Place, tracking: str) -> "subprocess.Popen[bytes]":
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {"PATH": path, "PYTHONPATH": str(place.folder), "MLFLOW_TRACKING_URI": tracking}
    place.log.parent.mkdir(exist_ok=True)
    with place.log.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "flows.cli", "run", "--without-prefect", "--wait"],  # for what a killed study left
            cwd=place.folder,
            env={**os.environ, **own, "DVC_EXP_NAME": place.plan.experiment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=parent_death_signal(),
        )


def _finish(place: Place, code: int, made_from: MadeFrom) -> str | None:
    """Save the run as an experiment; or say why it is none."""
    name = place.plan.experiment
    if code:
        return f"{name} failed with exit code {code}: {_cause(place.log)} (whole output: {place.log})"
    try:
        save_experiment(place.folder, name)
    except WorkspaceError as error:
        return f"{name} ended well, but is no experiment: {error}"
    with replacing(_stamp(place.folder)) as temporary:  # it says that the run has ended well and was saved
        temporary.write_text(json.dumps(asdict(made_from)), encoding="utf-8")
    return None


def _cause(log: Path) -> str:
    """Return the last line that the failed stage printed."""
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "no output"
