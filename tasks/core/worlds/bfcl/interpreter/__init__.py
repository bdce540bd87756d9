"""BFCL's own interpreter: the package without what its other categories and models need (torch, CUDA, 40 more).

`uv` builds it from a pinned list on first use (a few seconds, and a network or a local index) and keeps it.
"""

from pathlib import Path

from tasks.core import interpreters
from tasks.core.interpreters import INTERPRETERS, InterpreterRecipe, InterpreterUnavailable

BFCL = InterpreterRecipe(
    name="bfcl",
    requirements=Path(__file__).with_name("requirements.txt"),
    python=">=3.11,<3.13",
    dependencies=False,
    check="import bfcl_eval.model_handler.utils, bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker",
    variables=(("BFCL_PROJECT_ROOT", "{folder}/project"),),
)

__all__ = ["BFCL", "INTERPRETERS", "InterpreterUnavailable", "python_executable"]


def python_executable(folder: Path = INTERPRETERS) -> Path:
    """Return BFCL's interpreter, made under `folder` on first use. Raises InterpreterUnavailable."""
    return interpreters.python_executable(folder, BFCL)
