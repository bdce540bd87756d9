"""What git says of a checkout, and what it refuses to say."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.core.lineage.git_state import GitState, git_state
from tasks.core.records.layout import Layout
from tasks.record_lineage.recording import Pipeline, record_pipeline

Refuse = Callable[[Path, pytest.MonkeyPatch], None]


def owned_by_another(root: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    patch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    patch.setenv("GIT_CONFIG_NOSYSTEM", "1")


def not_installed(root: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("PATH", str(root))


def worktree_without_its_repository(root: Path, patch: pytest.MonkeyPatch) -> None:
    (root / ".git").rename(root.parent / "elsewhere")
    (root / ".git").write_text(f"gitdir: {root}/gone")


REFUSALS: list[tuple[Refuse, str]] = [
    (owned_by_another, "detected dubious ownership in repository"),
    (not_installed, "not installed"),
    (worktree_without_its_repository, "not a git repository: "),
]


@pytest.mark.parametrize(("refuse", "line"), REFUSALS)
def test_a_checkout_that_git_refuses_is_not_taken_for_clean(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], refuse: Refuse, line: str
) -> None:
    refuse(pipeline.layout.root, monkeypatch)
    state = git_state(pipeline.layout.root)
    assert (state.commit, state.dirty) == ("", None) and line in state.fault
    assert str(state) == f"commit (unknown; git says: {state.fault})"
    assert (pipeline.source_tags["git_commit"], pipeline.source_tags["git_dirty"]) == ("", "unknown")
    record_pipeline(pipeline)
    assert f"the run is recorded without its commit; git says: {state.fault}\n" in capsys.readouterr().err


def test_where_there_is_no_repository_nothing_is_wrong(tmp_path: Path) -> None:
    assert git_state(tmp_path) == GitState("", dirty=None)
    assert git_state(tmp_path).fault == "" and str(git_state(tmp_path)) == "commit (no git)"


def test_a_repository_without_a_commit_says_so(layout: Layout) -> None:
    subprocess.run(["git", "init", "-q", "empty"], cwd=layout.root, check=True)
    assert "Needed a single revision" in git_state(layout.root / "empty").fault
