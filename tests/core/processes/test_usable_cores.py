import os
import subprocess
import sys

import pytest

from tasks.core.processes.resources import usable_cores


def test_a_process_kept_to_one_core_has_one() -> None:
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
    code += "from tasks.core.processes.resources import usable_cores; print(usable_cores())"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_CPU_COUNT"}
    assert subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True).stdout == b"1\n"


def test_pythons_own_variable_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_CPU_COUNT", "3")
    assert usable_cores() == 3
    monkeypatch.setenv("PYTHON_CPU_COUNT", "default")
    assert usable_cores() == len(os.sched_getaffinity(0))
