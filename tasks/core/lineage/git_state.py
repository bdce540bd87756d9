"""The commit that a run came from, and whether the working tree differed from it."""

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class GitState:
    """The commit of a working tree; `commit` is "" outside a git repository."""

    commit: str
    dirty: bool
    """Tracked files differ from the commit. dvc.lock is left out: a running pipeline rewrites it."""

    def __str__(self) -> str:
        return f"commit {self.commit or '(no git)'}{' with changes' if self.dirty else ''}"


def git_state(root: Path) -> GitState:
    """The state of the repository at `root`."""
    commit = _git(root, "rev-parse", "HEAD")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", ".", ":!dvc.lock")
    return GitState(commit=commit, dirty=bool(changed))


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
