"""The runs of a study: some at a time, each as the warm flow without Prefect, in a working tree of its own.

Working trees are git worktrees in .loopline/studies with the checkout's code, and one DVC cache. They share the
repository's refs, so that `dvc exp show` of the checkout lists what was saved in any of them; and their artifacts
stay, so that a run that was killed goes on where it stopped.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from flows.comparison.plan import RunPlan
from flows.params_file import params_text, write_params
from tasks.core.config.world import WORLDS
from tasks.core.interfaces.world_kind import find_world
from tasks.core.interpreters import INTERPRETERS
from tasks.core.processes.running import parent_death_signal
from tasks.core.records.files import replacing

OWN_FILES = (":!params.yaml", ":!dvc.lock")
"""Files that a workspace has of its own."""
_PIPELINE = ("flows", "tasks", "data", "dvc.yaml")
"""The part that runs are made from: notes, tests and documents next to it change no run."""


class WorkspaceError(RuntimeError):
    """Git refused; the message is git's."""


@dataclass(frozen=True)
class Snapshot:
    """The code of a checkout, with what is not committed."""

    commit: str
    """HEAD: the experiments are this commit's."""
    tree: str
    """Git's digest of all files that git does not ignore, without `OWN_FILES`."""
    code: str
    """SHA-256 of git's digests of the pipeline's part of them."""


def take_snapshot(root: Path) -> Snapshot:
    """Read the checkout; nothing in it changes. Raises WorkspaceError where it is no git repository with a commit."""
    commit = _git(root, "rev-parse", "--verify", "HEAD^{commit}")
    if _git(root, "rev-parse", "--show-superproject-working-tree"):
        raise WorkspaceError(
            f"{root}: a study needs a clone of its own; this is a submodule, in whose working trees DVC finds no "
            "repository"
        )
    with tempfile.TemporaryDirectory() as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        _git(root, "read-tree", commit, **index)
        _git(root, "add", "--all", "--", ".", *OWN_FILES, **index)
        tree = _git(root, "write-tree", **index)
    code = _git(root, "ls-tree", tree, "--", *_PIPELINE)
    return Snapshot(commit, tree, sha256(code.encode()).hexdigest())


def make_workspace(root: Path, folder: Path, snapshot: Snapshot) -> None:
    """Bring the workspace `folder` to the code of `snapshot`; its params.yaml, dvc.lock and artifacts stay."""
    if not (folder / ".git").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        _git(root, "worktree", "prune")
        _git(root, "worktree", "add", "--detach", "--force", str(folder), snapshot.commit)
    # Against the index of before, so that a file that is no longer part of the code goes too.
    _git(folder, "restore", f"--source={snapshot.tree}", "--worktree", "--", ".", *OWN_FILES)
    _git(folder, "reset", "--mixed", "--quiet", snapshot.commit)
    _share(root, folder)


def remove_workspaces(root: Path, study: Path) -> None:
    """Delete the workspaces of a study; its tables, experiments and MLflow runs stay."""
    for link in sorted(study.glob("*/.git")):
        _git(root, "worktree", "remove", "--force", str(link.parent))


def save_experiment(folder: Path, name: str) -> None:
    """Save the finished run as DVC experiment `name`, in place of an older one. Raises WorkspaceError."""
    done = subprocess.run(
        [sys.executable, "-m", "dvc", "exp", "save", "--force", "--name", name],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise WorkspaceError(f"{folder}: `dvc exp save` failed:\n{done.stderr.strip()}")


def _share(root: Path, folder: Path) -> None:
    """Share the cache, so that equal stages of two methods run once, and what else takes minutes to make."""
    from dvc.config import Config

    cache = Config(str(root / ".dvc"), validate=False)["cache"].get("dir") or root / ".dvc" / "cache"
    (folder / ".dvc" / "config.local").write_text(f"[cache]\n    dir = {cache}\n")
    kept = [path for name in WORLDS.names() for path in find_world(name).kept_folders]
    for shared in (INTERPRETERS, *kept):
        place = folder / shared
        place.parent.mkdir(exist_ok=True)
        if not place.is_symlink():
            (root / shared).mkdir(parents=True, exist_ok=True)
            place.symlink_to(root / shared)


def _git(folder: Path, *arguments: str, **environment: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True
        )
    except FileNotFoundError:
        raise WorkspaceError("a study needs git, which is not installed") from None
    if done.returncode:
        raise WorkspaceError(f"{folder}: git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip()


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
        said = [line for line in place.log.read_text("utf-8", "replace").splitlines() if line.strip()]
        cause = said[-1] if said else "no output"
        return f"{name} failed with exit code {code}: {cause} (whole output: {place.log})"
    try:
        save_experiment(place.folder, name)
    except WorkspaceError as error:
        return f"{name} ended well, but is no experiment: {error}"
    with replacing(_stamp(place.folder)) as temporary:  # it says that the run has ended well and was saved
        temporary.write_text(json.dumps(asdict(made_from)), encoding="utf-8")
    return None
