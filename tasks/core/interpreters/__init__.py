"""Isolated interpreters for packages that can't share the pipeline's: AppWorld's engine, BFCL, the vLLM server.

    python = python_executable(ENVIRONMENTS, recipe)

Made by `uv` from a pinned list on first use, kept afterwards under `.loopline/environments`.
"""

from tasks.core.interpreters.building import (
    ENVIRONMENTS,
    EnvironmentUnavailable,
    inherited_variables,
    python_executable,
)
from tasks.core.interpreters.recipe import EnvironmentRecipe

__all__ = ["ENVIRONMENTS", "EnvironmentRecipe", "EnvironmentUnavailable", "inherited_variables", "python_executable"]
