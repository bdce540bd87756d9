"""The working trees of a study, and the lines that tell how far it is."""

import subprocess
from pathlib import Path

import pytest

from flows.comparison.plan import RunPlan
from flows.comparison.running import (
    RUNNING,
    Place,
    Progress,
    WorkspaceError,
    make_workspace,
    remove_workspaces,
    take_snapshot,
)
from tasks.core.interpreters import INTERPRETERS
from tasks.core.worlds.appworld.kind import ROOTS


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    (root / ".dvc").mkdir(parents=True)
    (root / ".dvc" / "config").write_text("")
    (root / ".gitignore").write_text("/.loopline/\n/.dvc/config.local\n")
    for name in ("kept.py", "gone.py", "params.yaml"):
        (root / name).write_text(f"{name} of the first commit\n")
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    return root


def test_a_dirty_checkout_is_copied_as_it_is_except_parameters(checkout: Path) -> None:
    (checkout / "kept.py").write_text("edited\n")
    (checkout / "new.py").write_text("untracked\n")
    (checkout / "gone.py").unlink()
    (checkout / "params.yaml").write_text("somebody's own\n")
    before = git(checkout, "status", "--porcelain")
    folder = checkout / ".loopline" / "studies" / "one"
    make_workspace(checkout, folder, take_snapshot(checkout))
    assert (folder / "kept.py").read_text() == "edited\n"
    assert (folder / "new.py").read_text() == "untracked\n"
    assert not (folder / "gone.py").exists()
    assert (folder / "params.yaml").read_text() == "params.yaml of the first commit\n"
    assert git(checkout, "status", "--porcelain") == before


def test_interpreters_and_authored_roots_are_made_once_for_all_workspaces(checkout: Path) -> None:
    folder = checkout / ".loopline" / "studies" / "one"
    for _ in range(2):
        make_workspace(checkout, folder, take_snapshot(checkout))
        for shared in (INTERPRETERS, ROOTS):
            (folder / shared / "made").write_text("here")
            assert (checkout / shared / "made").read_text() == "here"


def test_a_later_commit_reaches_a_workspace_whose_own_files_stay(checkout: Path) -> None:
    folder = checkout / ".loopline" / "studies" / "one"
    make_workspace(checkout, folder, take_snapshot(checkout))
    (folder / "params.yaml").write_text("the run's\n")
    (folder / "dvc.lock").write_text("what is done\n")
    (checkout / "gone.py").unlink()
    (checkout / "kept.py").write_text("second\n")
    git(checkout, "add", "-A")
    git(checkout, "commit", "-qm", "second")
    snapshot = take_snapshot(checkout)
    make_workspace(checkout, folder, snapshot)
    assert (folder / "kept.py").read_text() == "second\n"
    assert not (folder / "gone.py").exists()
    assert (folder / "params.yaml").read_text() == "the run's\n"
    assert (folder / "dvc.lock").read_text() == "what is done\n"
    assert git(folder, "rev-parse", "HEAD").strip() == snapshot.commit


def test_notes_outside_the_pipeline_do_not_count_as_other_code(checkout: Path) -> None:
    before = take_snapshot(checkout)
    (checkout / "study.log").write_text("somebody's notes\n")
    beside = take_snapshot(checkout)
    assert (beside.code, beside.tree == before.tree) == (before.code, False)
    for name in ("flows/new.py", "tasks/new.py", "data/new.json", "dvc.yaml"):
        (checkout / name).parent.mkdir(exist_ok=True)
        (checkout / name).write_text("untracked\n")
        changed = take_snapshot(checkout)
        assert changed.code != beside.code, name
        beside = changed


def test_removed_workspaces_are_gone_from_disk_and_from_git(checkout: Path) -> None:
    study = checkout / ".loopline" / "studies"
    make_workspace(checkout, study / "one", take_snapshot(checkout))
    (study / "one" / "artifact").write_text("ignored by nobody\n")
    remove_workspaces(checkout, study)
    assert list(study.iterdir()) == []
    assert len(git(checkout, "worktree", "list").splitlines()) == 1


def test_a_submodule_is_refused_and_a_separate_git_folder_is_none(checkout: Path, tmp_path: Path) -> None:
    outer, apart = tmp_path / "outer", tmp_path / "apart"
    git(tmp_path, "init", "-q", str(outer))
    git(outer, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(checkout), "inner")
    with pytest.raises(WorkspaceError, match="inner: a study needs a clone of its own; this is a submodule"):
        take_snapshot(outer / "inner")
    git(tmp_path, "clone", "-q", "--separate-git-dir", str(tmp_path / "elsewhere"), str(checkout), str(apart))
    make_workspace(apart, apart / ".loopline" / "studies" / "one", take_snapshot(apart))
    assert (apart / ".loopline" / "studies" / "one" / "kept.py").exists()


def test_outside_of_git_a_study_reports_it(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="git rev-parse failed"):
        take_snapshot(tmp_path)


def test_every_change_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One of four had ended before."""
    place = Place(RunPlan("loop", 0, "a_study_with_a_very_long_name_of_its_own-loop-s0", {}, ""), tmp_path)
    progress = Progress(4, 1)
    for state in (RUNNING, "done", RUNNING, "failed"):
        progress.tell(place, state)
    assert capsys.readouterr().err.splitlines() == [
        f"{place.plan.experiment}: {line}"
        for line in (
            "running; 1 of 4 runs, no estimate yet",
            "done; 2 of 4 runs, about 0 min left",
            "running; 2 of 4 runs, about 0 min left",
            "failed; 3 of 4 runs, about 0 min left",
        )
    ]
