"""Isolated interpreters for packages that cannot share the pipeline's: AppWorld's engine, BFCL, the vLLM server.

    python = python_executable(INTERPRETERS, recipe)

Made by `uv` from a pinned list on first use, kept afterwards under `.loopline/interpreters`.
"""

from tasks.core.interpreters.building import (
    INTERPRETERS,
    InterpreterRecipe,
    InterpreterUnavailable,
    inherited_variables,
    python_executable,
)

__all__ = ["INTERPRETERS", "InterpreterRecipe", "InterpreterUnavailable", "inherited_variables", "python_executable"]
