"""The interpreter of `verifiers`: the package with all that it needs, and the packages that `world.verifiers` names.

`uv` builds it from a pinned list on first use (half a minute, 400 MB, and a network or a local index) and keeps it.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tasks.core import interpreters
from tasks.core.interpreters import INTERPRETERS, InterpreterRecipe, InterpreterUnavailable

VERIFIERS = InterpreterRecipe(
    name="verifiers",
    requirements=Path(__file__).with_name("requirements.txt"),
    python=">=3.11,<3.15",
    check="import verifiers.v1, mcp.server.mcpserver",
)

__all__ = ["INTERPRETERS", "VERIFIERS", "InterpreterUnavailable", "python_executable", "with_packages"]


def with_packages(packages: Sequence[str]) -> InterpreterRecipe:
    """Return the recipe with these packages beside verifiers."""
    return replace(VERIFIERS, more=tuple(sorted(packages)))


def python_executable(packages: Sequence[str], folder: Path = INTERPRETERS) -> Path:
    """Return an interpreter with these packages, made under `folder` on first use. Raises InterpreterUnavailable."""
    return interpreters.python_executable(folder, with_packages(packages))
