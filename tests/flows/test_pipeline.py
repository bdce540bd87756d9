"""Both runners on the real dvc.yaml: what one has done, the other finds up to date."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
Python = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def real_project(project: Path) -> Path:
    """The project's own dvc.yaml and code, with three iterations."""
    for name in ("tasks", "flows"):
        shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("dvc.yaml", ".dvcignore", "pyproject.toml"):
        shutil.copy(ROOT / name, project / name)
    return project


def test_bad_targets_are_one_message(python: Python) -> None:
    for arguments, message in (
        (["--until", "no_such"], "unknown stage 'no_such'"),
        (["--until", "score@dev"], "unknown key 'dev'"),
    ):
        done = python("-m", "flows.pipeline", *arguments)
        assert done.returncode == 2
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.services
def test_the_runners_take_turns(real_project: Path, python: Python) -> None:
    warm = python("-m", "flows.pipeline", "--until", "filter_tasks")
    assert warm.returncode == 0, warm.stderr
    assert warm.stdout.splitlines()[-1] == "3 run, 0 from cache, 0 up to date"
    first = (real_project / "dvc.lock").read_bytes()
    assert "up to date" in python("-m", "dvc", "repro", "filter_tasks").stdout
    assert (real_project / "dvc.lock").read_bytes() == first

    shutil.rmtree(real_project / ".dvc" / "cache")
    shutil.rmtree(real_project / "data")
    (real_project / "dvc.lock").unlink()
    python("-m", "dvc", "repro", "filter_tasks").check_returncode()
    assert (real_project / "dvc.lock").read_bytes() == first
    again = python("-m", "flows.pipeline", "--until", "filter_tasks")
    assert again.stdout.splitlines()[-1] == "all 3 stages are up to date"


@pytest.mark.services
def test_a_failing_stage_is_one_message_and_the_rest_is_kept(real_project: Path, python: Python) -> None:
    python("-m", "flows.configure", "--refresh", "--set", "tasks.denylist=[no_such_task]").check_returncode()
    done = python("-m", "flows.pipeline", "--until", "filter_tasks")
    assert done.returncode == 1
    assert "no_such_task" in done.stderr
    assert "Traceback" not in done.stderr
    assert (real_project / "data" / "world").is_dir()
