"""Both runners on the real dvc.yaml: stages that one has run, the other finds up to date."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tasks.core.processes.addresses import free_port
from tests.flows.tiny_project import configure, environment, make_project, run, succeed

WarmFlow = Callable[[], subprocess.CompletedProcess[str]]


@pytest.fixture
def real_project(tmp_path: Path) -> Path:
    """Make a project with the real dvc.yaml and code, in which nothing has run."""
    return make_project(tmp_path / "project")


@pytest.fixture
def warm_flow(real_project: Path, prefect_url: str) -> WarmFlow:
    """Return a function that runs the warm flow up to the tasks, with proxies in the environment that lead nowhere."""
    proxies = {"HTTP_PROXY": "http://127.0.0.1:9", "ALL_PROXY": "socks5://127.0.0.1:9", "no_proxy": "", "NO_PROXY": ""}
    command = ("-m", "flows.cli", "run", "--until", "filter_tasks")
    return partial(run, real_project, *command, PREFECT_API_URL=prefect_url, **proxies)


@pytest.mark.whole_runs
def test_bad_targets_are_one_message(project: Path) -> None:
    for arguments, message in (
        (["--until", "no_such"], "unknown stage 'no_such'"),
        (["--until", "score@dev"], "unknown key 'dev'"),
    ):
        done = run(project, "-m", "flows.cli", "run", *arguments)
        assert done.returncode == 2
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.whole_runs
def test_a_prefect_server_that_is_down_is_one_line(project: Path) -> None:
    url = f"http://someone:secret@127.0.0.1:{free_port()}/api"
    shown = url.replace("someone:secret@", "")
    for command in (["flows.cli", "run"], ["flows.stage", "filter_advantages", "i001"]):
        done = run(project, "-m", *command, PREFECT_API_URL=url)
        (line,) = done.stderr.splitlines()
        assert done.returncode == 1
        assert f"no Prefect server answers at {shown} (" in line and line.endswith("start it, or unset PREFECT_API_URL")


@pytest.mark.whole_runs
def test_a_file_that_dvc_cannot_read_is_one_line_with_its_place(project: Path) -> None:
    (project / "dvc.yaml").write_text("stages:\n<<<<<<< HEAD\n  a: {cmd: b}\n=======\n>>>>>>> theirs\n")
    done = run(project, "-m", "flows.cli", "run", "--without-prefect")
    (line,) = done.stderr.splitlines()
    assert (done.returncode, line.partition(": not valid")[2]) == (1, " YAML: line 2: a git conflict marker")


@pytest.mark.whole_runs
def test_a_checkout_that_cannot_be_written_is_one_line(project: Path) -> None:
    read_only = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && cd "$0" && exec "$@"'
    unshared = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", read_only, str(project)]
    if subprocess.run([*unshared, "true"], capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    commands = (["flows.cli", "run", "--without-prefect"], ["flows.stage", "filter_advantages", "i001"])
    for command in (*commands, ["flows.cli", "configure", "--refresh", "--set", "seed=3"]):
        done = subprocess.run(
            [*unshared, sys.executable, "-m", *command], env=environment(project), capture_output=True, text=True
        )
        (line,) = done.stderr.splitlines()
        assert done.returncode == 1 and "Read-only file system" in line


@pytest.mark.whole_runs
def test_a_fault_in_a_stage_is_named_in_the_last_line_and_its_traceback_lies_in_a_file(real_project: Path) -> None:
    with (real_project / "tasks/filter_tasks.py").open("a") as body:
        body.write("def filter_tasks(context):\n    import torch\n    torch.zeros(2) @ torch.zeros(3)\n")
    done = run(real_project, "-m", "flows.cli", "run", "--without-prefect", "--until", "filter_tasks")
    first, last = done.stderr.splitlines()[-2:]
    assert (done.returncode, first) == (1, "loopline run: failed to reproduce 'filter_tasks'")
    assert last.startswith("RuntimeError: ") and last.endswith("(traceback: .loopline/traceback.log)")
    written = (real_project / ".loopline/traceback.log").read_text()
    assert "tasks/filter_tasks.py" in written and written.splitlines()[-1].startswith("RuntimeError: ")


@pytest.mark.whole_runs
def test_a_knob_that_dvc_commit_recorded_runs_its_stages_all_the_same(real_project: Path) -> None:
    command = ("-m", "flows.cli", "run", "--without-prefect", "--until", "prepare_world")
    assert succeed(real_project, *command).splitlines()[-1] == "2 run, 0 from cache, 0 up to date"
    configure(real_project, "--refresh", "world.pocketworld.chained_share=0.5")
    succeed(real_project, "-m", "dvc", "commit", "--force", "--quiet", "version_stages")
    assert "up to date" in succeed(real_project, "-m", "dvc", "status", "prepare_world")
    printed = succeed(real_project, *command).splitlines()
    assert any(line.startswith("changed: world.") for line in printed)
    assert printed[-1] == "2 run, 0 from cache, 0 up to date"
    assert succeed(real_project, *command).splitlines()[-1] == "all 2 stages are up to date"


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
