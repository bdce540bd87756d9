"""The commit of a run, and whether the working tree differed from it."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tasks.core.config.yaml_text import YamlFault, parse_yaml


@dataclass(frozen=True)
class GitState:
    """The commit of a working tree; `commit` is "" outside a git repository."""

    commit: str
    dirty: bool
    """Whether tracked files differ from the commit.

    dvc.lock does not count: a running pipeline rewrites it. Nor does a params.yaml in which `iterations` alone (and
    what is derived from it) differs: scheduled runs raise it to continue training.
    """

    def __str__(self) -> str:
        return f"commit {self.commit or '(no git)'}{' with changes' if self.dirty else ''}"


def git_state(root: Path) -> GitState:
    """Return the state of the repository at `root`."""
    commit = _git(root, "rev-parse", "HEAD")
    changed = _git(root, "diff", "--name-only", "--relative", "HEAD", "--", ".", ":!dvc.lock").splitlines()
    return GitState(commit, dirty=bool(changed) and not (changed == ["params.yaml"] and _continues(root)))


def _continues(root: Path) -> bool:
    """Return whether params.yaml differs from the commit's in `iterations` alone."""
    params = root / "params.yaml"
    committed = _git(root, "show", "HEAD:./params.yaml")
    return params.exists() and _settings(params.read_text(encoding="utf-8")) == _settings(committed)


def _settings(text: str) -> object:
    """Return what params.yaml says, without `iterations` and what is derived from it."""
    try:
        content = parse_yaml(text)
    except YamlFault:
        return text
    if not isinstance(content, dict):
        return text
    return {name: value for name, value in content.items() if name not in ("iterations", "dag")}


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
