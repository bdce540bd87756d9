"""Memory of a process whose freed blocks lie between small ones that stay, and the cores that it may use."""

import os
import subprocess
import sys

import pytest

from tasks.core.processes.resources import usable_cores

LARGE = """
import numpy as np
import psutil
from tasks.core.processes.resources import return_large_blocks
return_large_blocks()
np.ones(30 * 2**20, np.uint8)  # freed: glibc's own threshold would rise to it
before = psutil.Process().memory_info().rss
large, small = [], []
for _ in range(20):
    large.append(np.ones(8 * 2**20, np.uint8))
    small.append(np.ones(2**16, np.uint8))
large.clear()
print((psutil.Process().memory_info().rss - before) / 2**20)
"""

SMALLER = """
import numpy as np
import psutil
from tasks.core.processes.resources import return_freed_memory, return_large_blocks
return_large_blocks()
before = psutil.Process().memory_info().rss
blocks, between = [], []
for _ in range(100):
    blocks.append(np.ones(2**20, np.uint8))
    between.append(np.ones(2**12, np.uint8))
blocks.clear()
print((psutil.Process().memory_info().rss - before) / 2**20)
return_freed_memory()
print((psutil.Process().memory_info().rss - before) / 2**20)
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="of glibc")


def test_freed_large_blocks_go_back_to_the_system() -> None:
    (held,) = figures(LARGE)
    assert held < 20


def test_freed_smaller_blocks_go_back_when_they_are_asked_for() -> None:
    held, rest = figures(SMALLER)
    assert held > 90
    assert rest < 20


def figures(program: str) -> list[float]:
    """MiB that a program prints, a line each."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return [float(line) for line in done.stdout.splitlines()]


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
