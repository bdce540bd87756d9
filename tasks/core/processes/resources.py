"""The cores and the memory of this process: how many it may use, freed memory returned at once, less garbage collected.

By default glibc keeps freed blocks of up to 32 MiB once a block of that size was freed. Where threads free blocks in a
different order than they allocated them, holes remain: an update of 135 million parameters on two packs of 2,048
positions held 11.1 GB for 6.4 GB of tensors. Smaller blocks leave holes too; these are returned when a stage ends.
"""

import ctypes
import gc
import os
import sys
from typing import Any

_OLD = 1000
SPARING = f"import gc; gc.set_threshold(*gc.get_threshold()[:2], {_OLD})"
"""`spare_old_objects` as the first line of a program for an interpreter that cannot import this package."""


def spare_old_objects() -> None:
    """Collect all objects of this process after 7 million new objects instead of 70,000.

    By default Python does so whenever the living objects have grown by a quarter, which happens repeatedly while
    packages are imported: it takes a seventh of the import time of torch, transformers and peft and finds no garbage.
    Objects that die young are collected as before.
    """
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _OLD)


LARGE_BYTES = 4 * 2**20
"""Smaller blocks are kept: allocating them again would cost more than it saves."""
_M_MMAP_THRESHOLD = -3
"""Constant from malloc.h."""


def return_large_blocks() -> None:
    """Fix the mmap threshold of this process's malloc. Idempotent; does nothing for C libraries other than glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)


def return_freed_memory() -> None:
    """Return unused memory of this process's malloc to the system, including holes between blocks: 0.04 s for 0.6 GB.

    Does nothing for C libraries other than glibc. In a process that uses a GPU, it frees GPU memory too, including that
    of models in reference cycles. A model with replaced forward methods is in such a cycle: without this it would
    occupy the device (61 GiB at 32B) until Python happens to collect garbage (0.2 s with torch loaded).
    """
    if _cuda() is not None:
        gc.collect()
    return_device_blocks()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def return_device_blocks() -> None:
    """Return the cached blocks of torch that hold no tensor to the GPUs that this process uses, if any."""
    if (cuda := _cuda()) is not None:
        cuda.empty_cache()


def _cuda() -> Any:
    """Return torch.cuda in a process that uses it, else None; imports nothing."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None


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
