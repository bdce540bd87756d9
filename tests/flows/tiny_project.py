"""A project in miniature in its own folder: this checkout's code, the profile `drill`, and Python run in it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from flows.published.finished_run import run_digests
from tasks.core.records.files import read_json
from tasks.core.records.layout import Layout
from tests.made_once import empty_mlflow_store

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("tasks", "flows", "data/base_policies")
FILES = ("dvc.yaml", ".dvcignore", ".gitignore", "pyproject.toml", "prefect.yaml")
OF_ONE_RUN = shutil.ignore_patterns("mlflow.db", ".prefect", "tmp")
NOWHERE = {"PREFECT_API_URL": "", "MLFLOW_TRACKING_URI": "", "DVC_EXP_NAME": ""}


def make_project(folder: Path, *settings: str) -> Path:
    """Make a DVC project (without git) in which nothing has run; `settings` as `--set` takes them.

    It has this checkout's byte code too, which holds for files of the same time. What another process is about to
    write of it is left out. MLflow's tables are there, which tests/record_lineage sees being made.
    """
    from dvc.repo import Repo  # a third of a second, which only those who make projects pay

    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.pyc.*"))
    for name in FILES:
        shutil.copy2(ROOT / name, folder)
    Repo.init(str(folder), no_scm=True).close()
    configuration = (ROOT / ".dvc" / "config").read_text()
    (folder / ".dvc" / "config").write_text(configuration.replace("[core]\n", "[core]\n    no_scm = true\n"))
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
    """Return lineage.json's digests of code, parameters and artifacts, and those of all content."""
    return str([read_json(Layout(root).lineage), run_digests(root).model_dump_json()])
