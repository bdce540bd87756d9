"""Working trees of a study: git worktrees in .loopline/studies with the checkout's code, and one DVC cache.

A worktree shares the repository's refs, so that `dvc exp show` of the checkout lists what was saved in any of them; and
its artifacts stay, so that a run that was killed goes on where it stopped.
"""

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tasks.core.config.world import WORLDS
from tasks.core.interfaces.world_kind import find_world
from tasks.core.interpreters import INTERPRETERS

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
    cache = _dvc_cache(root)
    (folder / ".dvc" / "config.local").write_text(f"[cache]\n    dir = {cache}\n")
    kept = [path for name in WORLDS.names() for path in find_world(name).kept_folders]
    for shared in (INTERPRETERS, *kept):
        place = folder / shared
        place.parent.mkdir(exist_ok=True)
        if not place.is_symlink():
            (root / shared).mkdir(parents=True, exist_ok=True)
            place.symlink_to(root / shared)


def _dvc_cache(root: Path) -> Path:
    from dvc.config import Config

    named = Config(str(root / ".dvc"), validate=False)["cache"].get("dir")
    return Path(named) if named else root / ".dvc" / "cache"


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
