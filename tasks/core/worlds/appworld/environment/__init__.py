"""AppWorld's own interpreter: it needs pydantic < 2, so it can't share the pipeline's.

    python = python_executable(Path(".loopline/environments"))
    subprocess.run([python, "-m", "appworld.cli", "--version"], env=engine_variables(python, root))

Made by `uv` from a pinned list on first use (about 15 s and a network or a local index), kept afterwards.
"""

from tasks.core.environments import ENVIRONMENTS, EnvironmentUnavailable
from tasks.core.worlds.appworld.environment.interpreter import APPWORLD, engine_variables, python_executable

__all__ = ["APPWORLD", "ENVIRONMENTS", "EnvironmentUnavailable", "engine_variables", "python_executable"]
