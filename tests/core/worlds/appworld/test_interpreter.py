"""AppWorld's interpreter: pinned, and blind to the home directory."""

import subprocess
from pathlib import Path

import pytest

from tasks.core.worlds.appworld.kind import APPWORLD
from tasks.core.worlds.appworld.root.layout import engine_variables


def test_requirements_are_pinned_and_name_no_index() -> None:
    lines = APPWORLD.requirements.read_text().splitlines()
    assert "appworld==0.1.3.post1" in lines
    assert all(line.count("==") == 1 and "/" not in line for line in lines)


@pytest.mark.appworld
def test_engine_starts_without_touching_the_home_directory(appworld_python: Path, tmp_path: Path) -> None:
    variables = engine_variables(appworld_python, tmp_path) | {"HOME": str(tmp_path / "home")}
    code = "import pydantic, appworld; assert pydantic.VERSION < '2'; print(len(appworld.apps.get_all_apps()))"
    done = subprocess.run([appworld_python, "-c", code], env=variables, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "12\n"), done.stderr
    assert not (tmp_path / "home").exists()
