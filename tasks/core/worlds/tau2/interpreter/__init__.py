"""τ²-bench's own interpreter: the package without what asks models, draws tables or serves (40 packages and more).

`uv` builds it from a pinned list on first use (a few seconds, and a network or a local index) and keeps it.
"""

from pathlib import Path

from tasks.core import interpreters
from tasks.core.interpreters import INTERPRETERS, InterpreterRecipe, InterpreterUnavailable

TAU2 = InterpreterRecipe(
    name="tau2",
    requirements=Path(__file__).with_name("requirements.txt"),
    python=">=3.11,<3.13",
    dependencies=False,
    check="import addict, docstring_parser, loguru, pydantic, toml, yaml, tau2",
)

__all__ = ["INTERPRETERS", "TAU2", "InterpreterUnavailable", "python_executable"]


def python_executable(folder: Path = INTERPRETERS) -> Path:
    """Return τ²-bench's interpreter, made under `folder` on first use. Raises InterpreterUnavailable."""
    return interpreters.python_executable(folder, TAU2)
