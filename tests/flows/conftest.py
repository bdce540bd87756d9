"""A project in little: two stages of the registry with quick bodies, run by the real DVC."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.core.records.files import digest, read_json

ROOT = Path(__file__).resolve().parents[2]

DVC_YAML = """\
stages:
  prepare_world:
    cmd: python -m flows.stage prepare_world
    params: [world, seed]
    outs: [data/world]
  filter_advantages:
    foreach: ${previous}
    do:
      cmd: python -m flows.stage filter_advantages ${key}
      deps: [data/world]
      params: [advantages]
      outs: ["data/iterations/${key}/training_batch.parquet"]
  strangers_stage:
    cmd: echo hello > data/hello
    deps: [data/iterations]
    outs: [data/hello]
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A DVC project (without git) with three iterations."""
    run(tmp_path, "-m", "flows.configure", "default", "--set", "iterations=3").check_returncode()
    run(tmp_path, "-m", "dvc", "init", "--no-scm", "--quiet").check_returncode()
    run(tmp_path, "-m", "dvc", "config", "core.analytics", "false").check_returncode()
    (tmp_path / "dvc.yaml").write_text(DVC_YAML)
    return tmp_path


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the project's code, as the environment's `python` finds it."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path, "PREFECT_API_URL": "", **environment}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=variables, capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="session")
def python_in(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Run]:
    """Run Python in a folder. Prefect's database, which takes 7 s to make, is shared by all tests."""
    home = str(tmp_path_factory.getbasetemp() / "prefect")
    return lambda folder: lambda *arguments, **environment: run(folder, *arguments, PREFECT_HOME=home, **environment)


@pytest.fixture
def python(project: Path, python_in: Callable[[Path], Run]) -> Run:
    """Run Python in the project's folder."""
    return python_in(project)


@pytest.fixture(scope="session")
def tiny_project() -> Callable[[Path], Path]:
    """Make a copy of the real project, with the profile `drill`, at the path given."""
    return _tiny_project


def _tiny_project(folder: Path) -> Path:
    for name in ("tasks", "flows", "data/base_policies"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("dvc.yaml", ".dvcignore", "pyproject.toml", "prefect.yaml"):
        shutil.copy(ROOT / name, folder / name)
    run(folder, "-m", "dvc", "init", "--no-scm", "--quiet").check_returncode()
    configuration = (ROOT / ".dvc/config").read_text()
    (folder / ".dvc/config").write_text(configuration.replace("[core]\n", "[core]\n    no_scm = true\n"))
    run(folder, "-m", "flows.configure", "drill").check_returncode()
    return folder


@pytest.fixture(scope="session")
def digest_of() -> Callable[[Path], str]:
    """A digest of a finished pipeline: what lineage.json says of code, parameters and artifacts, and the files."""
    return _digest_of


WALL_CLOCK = ("metrics.json", "timings.json")


def _digest_of(root: Path) -> str:
    data = root / "data"
    kept = [path for path in data.rglob("*") if path.is_file() and path.name not in WALL_CLOCK]
    files = {str(path.relative_to(data)): digest(path) for path in kept if "report" not in path.parts}
    return str([read_json(data / "lineage.json"), sorted(files.items())])


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of a tiny pipeline that nothing disturbed."""
    root = _tiny_project(tmp_path_factory.mktemp("undisturbed") / "project")
    home = str(tmp_path_factory.getbasetemp() / "prefect")
    done = run(root, "-m", "flows.pipeline", PREFECT_HOME=home, PYTHONPATH=str(root))
    assert done.returncode == 0, done.stderr
    return _digest_of(root)
