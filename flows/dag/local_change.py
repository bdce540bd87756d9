"""A change of a git-tracked file that is this checkout's alone: git looks past it (skip-worktree), DVC reads it.

A scheduled run raises `iterations` every hour. The file must be params.yaml, since `dvc repro` by hand must find the
run as it is; and nobody wants to commit that number, nor to see the checkout as changed because of it.
"""

import subprocess
from pathlib import Path


def hide_change(path: Path) -> None:
    """Let git look past what is done to `path` from now on, unless it holds somebody's change that is not committed."""
    if _git(path, "ls-files", path.name) and not _git(path, "status", "--porcelain", "--", path.name):
        _git(path, "update-index", "--skip-worktree", path.name)


def show_change(path: Path) -> bool:
    """Let git see `path` again; whether it had looked past it."""
    hidden = _git(path, "ls-files", "-v", path.name).startswith("S")
    if hidden:
        _git(path, "update-index", "--no-skip-worktree", path.name)
    return hidden


def _git(path: Path, *arguments: str) -> str:
    """Output of git in the folder of `path`; nothing where there is no git or no repository."""
    try:
        done = subprocess.run(["git", *arguments], cwd=path.parent, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout if done.returncode == 0 else ""
