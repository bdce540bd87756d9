"""Large pages for a process that forks many times."""

import contextlib
import ctypes
import sys
from pathlib import Path

_MADV_COLLAPSE = 25  # Linux 6.1
_HUGE = 2**21


def collapse() -> None:
    """Gather this process's memory into 2 MB pages, where the kernel can.

    A fork copies one entry per page: with 512 times fewer of them a fork of the engine costs a third (see
    `tests/benchmarks/engine_forks.py`). A child that writes copies 4 KB as before. It changes nothing but speed, so
    that failures are no matter.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, ValueError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for begin, end in _private_ranges():
            for place in range(-(-begin // _HUGE) * _HUGE, end - _HUGE + 1, _HUGE):
                libc.madvise(place, _HUGE, _MADV_COLLAPSE)


def _private_ranges() -> list[tuple[int, int]]:
    ranges = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        fields = line.split()
        if fields[1] == "rw-p" and (len(fields) < 6 or fields[5] == "[heap]"):
            begin, _, end = fields[0].partition("-")
            ranges.append((int(begin, 16), int(end, 16)))
    return ranges
