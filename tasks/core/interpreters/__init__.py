"""Isolated interpreters for packages that cannot share the pipeline's: AppWorld's engine, τ²-bench, the vLLM server.

    python = python_executable(INTERPRETERS, recipe)

Made by `uv` from a pinned list on first use: whole or not at all, once, also when many processes ask at the same time.
Kept afterwards under `.loopline/interpreters`.
"""

import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from tqdm import tqdm

from tasks.core.interpreters.package_index import uv_index_variables


@dataclass(frozen=True)
class InterpreterRecipe:
    """An interpreter of its own, for a package that can't share the pipeline's."""

    name: str
    requirements: Path
    """Fully pinned list, without an index address: the user's pip configuration provides the index."""
    python: str
    """Version range of suitable interpreters, in uv's syntax."""
    overrides: Path | None = None
    """Requirements that replace those the packages declare, in uv's format."""
    dependencies: bool = True
    """False: install only the list, whatever dependencies the packages declare."""
    setup: tuple[str, ...] = ()
    """Arguments of `python -m`, run once after the installation."""
    check: str = ""
    """Python code that must run at the end. It byte-compiles whatever it imports, including what the set-up unpacked;
    without a check, all packages are byte-compiled."""
    variables: tuple[tuple[str, str], ...] = ()
    """Environment variables of setup and check; `{folder}` stands for the interpreter's folder."""

    @property
    def digest(self) -> str:
        """Changes when the recipe does, so that an interpreter of an older recipe is never used."""
        listed = self.requirements.read_text(encoding="utf-8")
        content: tuple[object, ...] = (listed, self.python, self.setup, self.check, self.variables)
        if self.overrides is not None:
            content += (self.overrides.read_text(encoding="utf-8"),)
        if not self.dependencies:
            content += (self.dependencies,)
        return hashlib.sha256(repr(content).encode()).hexdigest()[:12]


INTERPRETERS = Path(".loopline") / "interpreters"
"""Where a project keeps its isolated interpreters, relative to its root; ignored by git."""

_COMPLETE = "complete"
_STEP_SECONDS = 1200
_SHOWN_LINES = 15


class InterpreterUnavailable(RuntimeError):  # noqa: N818 - reads as what it is
    """The isolated interpreter can't be made here; the message says which step failed and what to do."""


def python_executable(folder: Path, recipe: InterpreterRecipe) -> Path:
    """Return the absolute path of the recipe's interpreter, which is made under `folder` on first use.

    Safe to call from many processes at once (a file lock), and after a crash: an interpreter without its completion
    mark is made anew. Raises InterpreterUnavailable.
    """
    home = folder.resolve() / f"{recipe.name}-{recipe.digest}"
    python = home / "bin" / "python"
    if (home / _COMPLETE).exists() and python.exists():
        return python
    with FileLock(home.with_name(f".{home.name}.lock")):
        if not ((home / _COMPLETE).exists() and python.exists()):
            _build(home, recipe)
    return python


def inherited_variables() -> dict[str, str]:
    """Return this process's variables for an isolated interpreter: without our packages, free to write byte code."""
    dropped = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if name not in dropped}


def _build(home: Path, recipe: InterpreterRecipe) -> None:
    building = home.with_name(f".{home.name}.building")
    shutil.rmtree(building, ignore_errors=True)
    own = {name: value.format(folder=building) for name, value in recipe.variables}
    variables = inherited_variables() | uv_index_variables() | own
    try:
        with tqdm(_steps(building, recipe), desc=f"{recipe.name} interpreter", unit="step", leave=False) as steps:
            for name, command in steps:
                steps.set_postfix_str(name)
                _run(f"{recipe.name} interpreter: {name}", command, variables)
        (building / _COMPLETE).write_text(recipe.digest + "\n", encoding="utf-8")
        shutil.rmtree(home, ignore_errors=True)
        building.rename(home)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _steps(home: Path, recipe: InterpreterRecipe) -> list[tuple[str, list[str]]]:
    import uv  # here, so that stages which need no interpreter run where uv is not installed

    uv_binary, python = uv.find_uv_bin(), str(home / "bin" / "python")
    create = [uv_binary, "venv", "--quiet", "--relocatable", "--no-python-downloads", "--python", recipe.python]
    install = [uv_binary, "pip", "install", "--quiet", "--python", python]
    if not recipe.check:  # a check compiles what it imports, which is only a fifth of vLLM's files
        install.append("--compile-bytecode")
    if recipe.overrides is not None:
        install += ["--override", str(recipe.overrides)]
    if not recipe.dependencies:
        install.append("--no-deps")
    install += ["--requirements", str(recipe.requirements)]
    steps = [("create", [*create, str(home)]), ("install packages", install)]
    if recipe.setup:
        steps.append(("set up", [python, "-m", *recipe.setup]))
    if recipe.check:
        steps.append(("check", [python, "-c", recipe.check]))
    return steps


def _run(step: str, command: list[str], variables: dict[str, str]) -> None:
    try:
        done = subprocess.run(
            command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_STEP_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InterpreterUnavailable(f"{step} failed: {error}. {_ADVICE}") from error
    if done.returncode != 0:
        output = "\n".join((done.stdout + done.stderr).strip().splitlines()[-_SHOWN_LINES:])
        raise InterpreterUnavailable(f"{step} failed (exit {done.returncode}). {_ADVICE}\n{output}")


_ADVICE = (
    "It needs Python 3.11 or 3.12 on this machine and a package index (the network, or what `pip config list` names); "
    "run the command again when both are available. No half-made environment was kept."
)
