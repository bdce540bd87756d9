"""The cores that this process may use, which may be fewer than the machine has."""

import os

CORES_VARIABLE = "PYTHON_CPU_COUNT"
"""Python's own variable (3.13) for a process whose share of a machine its affinity does not show, as on Ray."""


def usable_cores() -> int:
    """Cores that this process may run on: what PYTHON_CPU_COUNT says, else its affinity; at least 1.

    As `os.process_cpu_count` of Python 3.13. Raises ValueError when PYTHON_CPU_COUNT is no whole number.
    """
    told = os.environ.get(CORES_VARIABLE, "default")
    if told != "default":
        return max(1, int(told))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def side_by_side(threads: int, processes: int) -> int:
    """Computations of so many threads that a process runs at once, one of `processes` on this machine; at least 1."""
    return max(1, usable_cores() // (threads * processes))
