"""The commit of a run, and whether the working tree differed from it."""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tasks.core.config.yaml_text import YamlFault, parse_yaml

DIRTY = {"true": True, "false": False}
"""`GitState.dirty` by the tag in MLflow; "unknown" is None."""


@dataclass(frozen=True)
class GitState:
    """The commit of a working tree; `commit` is "" where git names none."""

    commit: str
    dirty: bool | None
    """Whether tracked files differ from the commit; None where that can't be known.

    dvc.lock does not count: a running pipeline rewrites it. Nor does a params.yaml in which `iterations` alone (and
    what is derived from it) differs: scheduled runs raise it to continue training.
    """
    fault: str = field(default="", compare=False)
    """Git's line where there is a repository that it does not read: another owner's, say; "" elsewhere."""

    def __str__(self) -> str:
        unknown = f"(unknown; git says: {self.fault})" if self.fault else "(no git)"
        return f"commit {self.commit or unknown}{' with changes' if self.dirty else ''}"


class _GitFault(RuntimeError):  # noqa: N818
    """Git's last word."""


def git_state(root: Path) -> GitState:
    """Return the state of the repository at `root`."""
    try:
        commit = _git(root, "rev-parse", "--verify", "HEAD^{commit}")
        changed = _git(root, "diff", "--name-only", "--relative", "HEAD", "--", ".", ":!dvc.lock").splitlines()
        return GitState(commit, dirty=bool(changed) and not (changed == ["params.yaml"] and _continues(root)))
    except _GitFault as fault:
        is_repository = any((folder / ".git").exists() for folder in (root, *root.absolute().parents))
        return GitState("", dirty=None, fault=str(fault) if is_repository else "")


def _continues(root: Path) -> bool:
    """Return whether params.yaml differs from the commit's in `iterations` alone."""
    params = root / "params.yaml"
    try:
        committed = _git(root, "show", "HEAD:./params.yaml")
    except _GitFault:  # the commit has none
        return False
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
    """Return what git prints. Raises _GitFault with its line where it fails or is not installed."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise _GitFault("not installed") from None
    if done.returncode:
        raise _GitFault(next(iter(done.stderr.splitlines()), f"exit code {done.returncode}").removeprefix("fatal: "))
    return done.stdout.strip()
