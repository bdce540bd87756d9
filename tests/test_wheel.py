"""The wheel: it installs the command alone, which runs the checkout in the current folder."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
import uv

from tasks.core.interpreters import uv_index_variables

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.packaged


def run(*command: object, cwd: Path = ROOT, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=cwd, env={**environment, **variables}, capture_output=True, text=True)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Build the wheel and install it, without its dependencies, into an environment that has nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    index = uv_index_variables()
    for command in (
        ("build", "--quiet", "--wheel", "--out-dir", folder / "dist"),
        ("venv", "--quiet", "--python", sys.executable, folder / "clean"),
        (
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--python",
            folder / "clean",
            "--find-links",
            folder / "dist",
            "loopline",
        ),
    ):
        done = run(uv.find_uv_bin(), *command, **index)
        assert done.returncode == 0, done.stderr
    yield folder / "clean"


def test_it_puts_no_package_with_a_common_name_into_site_packages(installed: Path) -> None:
    (packages,) = installed.glob("lib/python*/site-packages")
    names = {path.name for path in packages.iterdir() if not path.name.startswith("_")}
    assert {name.partition("-")[0] for name in names} <= {"loopline.py", "loopline"}
    assert (installed / "bin" / "loopline").exists()


def test_outside_a_checkout_the_command_says_what_it_needs(installed: Path, tmp_path: Path) -> None:
    done = run(installed / "bin" / "loopline", "--help", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"loopline: {tmp_path} is in no checkout of loopline; clone the repository, run it there\n"


def test_in_a_checkout_it_is_the_command_of_that_checkout(installed: Path) -> None:
    """With the dependencies of this environment, as `pip install` would have brought them."""
    done = run(installed / "bin" / "loopline", "status", "--help", PYTHONPATH=sysconfig.get_path("purelib"))
    assert done.returncode == 0, done.stderr
    assert "List the stages that would run now, and why." in done.stdout
