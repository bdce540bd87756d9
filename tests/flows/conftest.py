"""Projects in miniature: two stages with quick bodies, run by the real DVC, or all stages on few tasks."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, chdir
from importlib.metadata import version
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from flows.runners.prefect_server import local_server
from tests.flows.tiny_project import make_project, run, succeed
from tests.made_once import made_once

DVC_YAML = """\
stages:
  prepare_world:
    cmd: python -m flows.stage prepare_world
    params: [world, seed]
    outs: [data/world]
  filter_advantages:
    foreach: ${dag.previous}
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

Run = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="session")
def new_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the original of `project`, with three commands."""
    root = tmp_path_factory.mktemp("new_project")
    succeed(root, "-m", "flows.cli", "configure", "default", "--set", "iterations=3")
    succeed(root, "-m", "dvc", "init", "--no-scm", "--quiet")
    succeed(root, "-m", "dvc", "config", "core.analytics", "false")
    (root / "dvc.yaml").write_text(DVC_YAML)
    succeed(root, "-m", "flows.stage", "version_stages")
    return root


@pytest.fixture
def project(new_project: Path, tmp_path: Path) -> Path:
    """Copy a DVC project (without git or code of its own) with three iterations."""
    return Path(shutil.copytree(new_project, tmp_path, dirs_exist_ok=True))


@pytest.fixture(scope="session")
def new_prefect_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with Prefect's database and no run in it, for copying: a server takes 6 s to make one."""

    def make(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch, chdir(tmp_path_factory.mktemp("new_server")):
            patch.setenv("PREFECT_HOME", str(folder))
            with local_server():
                pass

    return made_once(f"prefect-{version('prefect')}", make)


@pytest.fixture(scope="session")
def prefect_home(new_prefect_home: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the folder of Prefect's database for all tests that start servers."""
    return str(shutil.copytree(new_prefect_home, tmp_path_factory.mktemp("prefect") / "home"))


@pytest.fixture(scope="session")
def python_in(prefect_home: str) -> Callable[[Path], Run]:
    """Return a function that runs Python in a folder; a warm flow starts its own Prefect server."""
    return lambda folder: (
        lambda *arguments, **environment: run(folder, *arguments, PREFECT_HOME=prefect_home, **environment)
    )


@pytest.fixture
def python(project: Path, python_in: Callable[[Path], Run]) -> Run:
    """Return a function that runs Python in the project's folder."""
    return python_in(project)


@pytest.fixture(scope="session")
def prefect_url(prefect_home: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the API of one Prefect server for the warm flows of all tests that are not about the server."""
    with ExitStack() as running, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PREFECT_HOME", prefect_home)
        with chdir(tmp_path_factory.mktemp("server")):
            url = running.enter_context(local_server())
        yield url


@pytest.fixture(scope="session")
def finished_project(prefect_url: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a tiny project after one undisturbed run of the warm flow; tests change copies made by `copy_project`."""
    root = make_project(tmp_path_factory.mktemp("finished") / "project")
    succeed(root, "-m", "flows.cli", "run", PREFECT_API_URL=prefect_url)
    return root
