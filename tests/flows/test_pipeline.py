"""Both runners on the real dvc.yaml: what one has done, the other finds up to date."""

import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.flows.tiny_project import configure, make_project, run, succeed

WarmFlow = Callable[[], subprocess.CompletedProcess[str]]


@pytest.fixture
def real_project(tmp_path: Path) -> Path:
    """The project's own dvc.yaml and code, in which nothing has run."""
    return make_project(tmp_path / "project")


@pytest.fixture
def warm_flow(real_project: Path, prefect_url: str) -> WarmFlow:
    """Run the warm flow in it, up to the tasks."""
    return partial(run, real_project, "-m", "flows.pipeline", "--until", "filter_tasks", PREFECT_API_URL=prefect_url)


def test_bad_targets_are_one_message(project: Path) -> None:
    for arguments, message in (
        (["--until", "no_such"], "unknown stage 'no_such'"),
        (["--until", "score@dev"], "unknown key 'dev'"),
    ):
        done = run(project, "-m", "flows.pipeline", *arguments)
        assert done.returncode == 2
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.services
def test_the_runners_take_turns(real_project: Path, warm_flow: WarmFlow) -> None:
    warm = warm_flow()
    assert warm.returncode == 0, warm.stderr
    assert warm.stdout.splitlines()[-1] == "3 run, 0 from cache, 0 up to date"
    first = (real_project / "dvc.lock").read_bytes()
    assert "up to date" in succeed(real_project, "-m", "dvc", "repro", "filter_tasks")
    assert (real_project / "dvc.lock").read_bytes() == first

    for folder in (".dvc/cache", "data/world", "data/tasks"):
        shutil.rmtree(real_project / folder)
    (real_project / "data" / "stage_versions.json").unlink()
    (real_project / "dvc.lock").unlink()
    succeed(real_project, "-m", "dvc", "repro", "filter_tasks")
    assert (real_project / "dvc.lock").read_bytes() == first
    assert warm_flow().stdout.splitlines()[-1] == "all 3 stages are up to date"


@pytest.mark.services
def test_a_failing_stage_is_one_message_and_the_rest_is_kept(real_project: Path, warm_flow: WarmFlow) -> None:
    configure(real_project, "--refresh", "tasks.denylist=[no_such_task]")
    done = warm_flow()
    assert done.returncode == 1
    assert "no_such_task" in done.stderr
    assert "Traceback" not in done.stderr
    assert (real_project / "data" / "world").is_dir()
