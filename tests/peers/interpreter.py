"""The peers' interpreter: `trl` and `verl` without their dependencies besides this project's own packages.

`uv` makes it from a pinned list on first use (3 MB each, a few seconds). torch, transformers and the rest come from
this project's environment, after the peers' own packages, so the interpreter has the same Python version.
"""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from tasks.core.interpreters import INTERPRETERS, InterpreterRecipe, inherited_variables, python_executable

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PEERS = InterpreterRecipe(
    name="peers",
    requirements=HERE / "requirements.txt",
    python=f"{sys.version_info.major}.{sys.version_info.minor}",
    dependencies=False,
    check="import importlib.metadata as m; m.version('trl'); m.version('verl')",
)


def ask_peers(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Run inside.py on the cases. Returns what the peers' functions make of each, by the functions' names."""
    answers: list[dict[str, Any]] = asked(PEERS, "inside.py", sysconfig.get_path("purelib"), said=json.dumps(cases))
    return answers


def asked(recipe: InterpreterRecipe, script: str, *arguments: str, said: str = "") -> Any:
    """Run a script of this folder in an interpreter, which reads `said`; return the JSON of its last line."""
    command = [str(python_executable(ROOT / INTERPRETERS, recipe)), str(HERE / script), *arguments]
    done = subprocess.run(command, input=said, env=inherited_variables(), capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
