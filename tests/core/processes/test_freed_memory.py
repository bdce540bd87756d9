"""Memory of a process whose freed blocks lie between small ones that stay."""

import subprocess
import sys

import pytest

PROGRAM = """
import numpy as np
import psutil
from tasks.core.processes.freed_memory import return_large_blocks
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


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
def test_freed_blocks_go_back_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 20
