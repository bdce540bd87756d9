"""A study in miniature, of real pipelines: killed midway, resumed, and its results in DVC and MLflow."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from tasks.core.records.comparison import Study
from tasks.core.records.documents import read_document
from tests.flows.tiny_project import NOWHERE, ROOT, make_project, run

pytestmark = pytest.mark.services

STUDY = {
    "name": "little",
    "base": ["default", "drill"],
    "seeds": [0],
    "methods": {"loop": None, "grpo": "grpo", "broken": {"settings": ["policy.source=/nowhere"]}},
    "against": "loop",
}
COMMAND = ("-m", "flows.cli", "compare", "little.yaml", "--jobs", "1")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make a git repository with the code of this checkout and a study, nothing of which has run."""
    folder = make_project(tmp_path_factory.mktemp("study") / "project")
    for name in (".dvc/config", ".dvc/.gitignore"):
        shutil.copy2(ROOT / name, folder / name)
    (folder / "little.yaml").write_text(yaml.safe_dump(STUDY, sort_keys=False))
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "project"]):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments], cwd=folder, check=True)
    for name, value in (("user.name", "t"), ("user.email", "t@t")):
        subprocess.run(["git", "config", name, value], cwd=folder, check=True)
    yield folder


def run_git(project: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=project, check=True, capture_output=True, text=True).stdout


def at_work(project: Path) -> list[psutil.Process]:
    """Return the processes that work in a workspace of the project."""
    working = []
    for process in psutil.process_iter():
        try:
            if str(project / ".loopline" / "studies") in process.cwd():
                working.append(process)
        except psutil.Error:
            pass
    return working


def wait_for(condition: "object", seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_a_killed_study_leaves_no_process_and_goes_on_where_it_stopped(project: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, **NOWHERE, "PYTHONPATH": str(project), "PATH": path}
    first = project / ".loopline" / "studies" / "little" / "loop-s0"
    study = subprocess.Popen([sys.executable, *COMMAND], cwd=project, env=environment, stderr=subprocess.DEVNULL)
    wait_for(lambda: (first / "data/iterations/i001/rollouts.parquet").exists() or study.poll() is not None, 300)
    study.send_signal(signal.SIGKILL)
    study.wait()
    wait_for(lambda: not at_work(project), 60)
    rollouts = first / "data/iterations/i001/rollouts.parquet"
    made = rollouts.stat().st_mtime_ns if rollouts.exists() else None

    (project / "notes.md").write_text("staged")
    subprocess.run(["git", "add", "notes.md"], cwd=project, check=True)
    hook = {"GIT_DIR": str(project / ".git"), "GIT_INDEX_FILE": str(project / ".git" / "index"), "GIT_PREFIX": ""}
    done = run(project, *COMMAND, **hook)
    assert done.returncode == 1, done.stderr
    assert "A  notes.md\n" in run_git(project, "status", "--short"), "the index of whoever called stays as it is"
    run_git(project, "rm", "--quiet", "--force", "notes.md")
    assert "little-broken-s0 failed with exit code" in done.stderr and "/nowhere" in done.stderr
    if made is not None and (first / "dvc.lock").exists():
        assert rollouts.exists()
    table = (project / "data/comparisons/little/table.md").read_text()
    assert table in done.stdout
    assert "Not in the tables, for they have not ended: little-broken-s0." in table
    result = read_document(project / "data/comparisons/little/study.json", Study)
    loop, grpo = result.runs
    assert (loop.method, grpo.method) == ("loop", "grpo") and loop.rollouts == grpo.rollouts == 8
    for split, of_loop in loop.solved.items():
        assert of_loop["base"] == grpo.solved[split]["base"] != ()
        assert {len(text) for text in of_loop["selected"]} == {len(result.tasks[split].split())}
    assert [iteration for iteration, _ in loop.dev_tgc] == [0, 1]


def test_the_runs_are_experiments_of_the_checkout_and_of_mlflow(project: Path) -> None:
    listed = run(project, "-m", "dvc", "exp", "list", "--name-only").stdout.split()
    assert {"little-loop-s0", "little-grpo-s0"} <= set(listed)
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{project / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("little")
    assert experiment is not None
    names = {found.info.run_name for found in client.search_runs([experiment.experiment_id])}
    assert names == {"little-loop-s0", "little-grpo-s0"}
    status = subprocess.run(["git", "status", "--porcelain"], cwd=project, capture_output=True, text=True).stdout
    assert status == ""


def test_finished_runs_are_not_repeated_and_the_tables_can_be_written_alone(project: Path) -> None:
    stamp = project / ".loopline/studies/little/loop-s0/.loopline/made_from"
    before = stamp.stat().st_mtime_ns
    table = (project / "data/comparisons/little/table.md").read_bytes()
    done = run(project, *COMMAND, "--methods", "loop,grpo")
    assert done.returncode == 0, done.stderr
    assert stamp.stat().st_mtime_ns == before
    (project / "data/comparisons/little/table.md").unlink()
    assert run(project, *COMMAND, "--report").returncode == 0
    assert (project / "data/comparisons/little/table.md").read_bytes() == table
    other = run(project, *COMMAND, "--report", "--set", "update.learning_rate=0.5")
    assert other.returncode == 1 and "no run has ended yet" in other.stderr, "runs of other parameters are not these"
    assert (project / "data/comparisons/little/table.md").read_bytes() == table
