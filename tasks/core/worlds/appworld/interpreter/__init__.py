"""AppWorld's own interpreter: it needs pydantic < 2, so it can't share the pipeline's.

    python = python_executable(Path(".loopline/interpreters"))
    subprocess.run([python, "-m", "appworld.cli", "--version"], env=engine_variables(python, root))

Made by `uv` from a pinned list on first use (about 15 s and a network or a local index), kept afterwards.
"""

import os
from pathlib import Path

from tasks.core import interpreters
from tasks.core.interpreters import INTERPRETERS, InterpreterRecipe, InterpreterUnavailable

__all__ = ["APPWORLD", "INTERPRETERS", "InterpreterUnavailable", "engine_variables", "python_executable"]

APPWORLD = InterpreterRecipe(
    name="appworld",
    requirements=Path(__file__).with_name("requirements.txt"),
    python=">=3.11,<3.13",
    setup=("appworld.cli", "install"),
    check="import appworld.environment, appworld.evaluator; appworld.apps.build_main_app()",
    variables=(("APPWORLD_CACHE", "{folder}/cache"), ("APPWORLD_ROOT", "{folder}/cache")),
)


def python_executable(folder: Path = INTERPRETERS) -> Path:
    """AppWorld's interpreter, made under `folder` on first use. Raises InterpreterUnavailable."""
    return interpreters.python_executable(folder, APPWORLD)


def engine_variables(python: Path, root: Path) -> dict[str, str]:
    """Environment variables for a process of AppWorld's interpreter that works on the data under `root`.

    Without APPWORLD_CACHE the package writes into the home directory. Nothing else of the caller's environment
    is passed on but what a process needs: agents' code may read it.
    """
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LD_LIBRARY_PATH", "TMPDIR") if name in os.environ}
    return kept | {
        "APPWORLD_ROOT": str(root.resolve()),
        "APPWORLD_CACHE": str(python.parent.parent / "cache"),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
