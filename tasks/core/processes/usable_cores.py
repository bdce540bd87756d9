"""The cores that this process may use, possibly fewer than the machine has."""

import os

CORES_VARIABLE = "PYTHON_CPU_COUNT"
"""Python's own variable (3.13), for a process whose share of a machine does not show in its affinity, as on Ray."""


def usable_cores() -> int:
    """Return how many cores this process may use: PYTHON_CPU_COUNT if set, else its affinity; at least 1.

    Like `os.process_cpu_count` of Python 3.13. Raises ValueError when PYTHON_CPU_COUNT is not a whole number.
    """
    core_count = os.environ.get(CORES_VARIABLE, "default")
    if core_count != "default":
        return max(1, int(core_count))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def side_by_side(threads: int, processes: int) -> int:
    """Return how many computations of `threads` threads each of `processes` processes can run at once; at least 1."""
    return max(1, usable_cores() // (threads * processes))
