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
    python = python_executable(ROOT / INTERPRETERS, PEERS)
    command = [str(python), str(HERE / "inside.py"), sysconfig.get_path("purelib")]
    done = subprocess.run(
        command, input=json.dumps(cases), env=inherited_variables(), capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return answers
