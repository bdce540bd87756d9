"""A project in miniature in its own folder: this checkout's code, the profile `drill`, and Python run in it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from flows.dag import new_project
from flows.published import artifacts_that_count
from tasks.core.lineage.dvc_lock import whole_lock
from tasks.core.records.files import read_json
from tasks.core.records.layout import Layout
from tests.made_once import empty_mlflow_store

ROOT = Path(__file__).resolve().parents[2]
OF_ONE_RUN = shutil.ignore_patterns("mlflow.db", ".prefect", "tmp")
NOWHERE = {"PREFECT_API_URL": "", "MLFLOW_TRACKING_URI": "", "DVC_EXP_NAME": ""}


def make_project(folder: Path, *settings: str) -> Path:
    """Make a DVC project (without git) in which nothing has run; `settings` as `--set` takes them.

    MLflow's tables are there, which tests/record_lineage sees being made.
    """
    new_project.make_project(ROOT, folder)
    shutil.copy2(empty_mlflow_store(), folder)
    configure(folder, "drill", *settings)
    return folder


def configure(folder: Path, profile: str, *settings: str) -> None:
    """Write params.yaml; profile "--refresh" changes the present file."""
    succeed(folder, "-m", "flows.cli", "configure", profile, *(f"--set={setting}" for setting in settings))


def copy_project(project: Path, folder: Path) -> Path:
    """Copy a project with all artifacts and DVC's cache, without the records of trackers and locks of its run."""
    shutil.copytree(project, folder, ignore=OF_ONE_RUN)
    shutil.copy2(empty_mlflow_store(), folder)
    return folder


def run(folder: Path, *arguments: str, **changes: str) -> "subprocess.CompletedProcess[str]":
    """Run Python in a folder, with the folder's own code, or with this checkout's where it has none.

    Byte code is kept even where the environment forbids it, since a project runs many commands.
    """
    command = [sys.executable, *arguments]
    variables = environment(folder, **changes)
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=550)


def environment(folder: Path, **changes: str) -> dict[str, str]:
    """Return the variables of a command in a folder: the folder's own code or this checkout's, and no trackers."""
    code = folder if (folder / "flows").is_dir() else ROOT
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {"PYTHONPATH": str(code), "PYTHONDONTWRITEBYTECODE": "", "PATH": path}
    return {**os.environ, **own, **NOWHERE, **changes}


def succeed(folder: Path, *arguments: str, **environment: str) -> str:
    """Run a command that must succeed; return its output."""
    done = run(folder, *arguments, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def digest_of(root: Path) -> str:
    """Return lineage.json's digests of code, parameters and artifacts, and those of all artifacts that count."""
    return str([read_json(Layout(root).lineage), sorted(artifacts_that_count(whole_lock(root / "dvc.lock")).items())])
