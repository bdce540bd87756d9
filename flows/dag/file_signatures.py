"""Whether files were touched: in this process's life, or between two looks, even if they were put back since."""

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from tasks.core.processes.running import find_process

Signature = tuple[int, int, int, int] | None
"""Time of change of content and of inode in ns, size and inode of a file; None where there is none."""

_IMPORTS_BEGIN_S = 0.02
"""A Python process needs longer than this from its start to its first import of ours."""


def signatures(files: Iterable[Path]) -> dict[Path, Signature]:
    """Return the signature of each file."""
    return {file: _signature(file) for file in files}


def changed_files(before: Mapping[Path, Signature]) -> list[Path]:
    """Return the files whose signature is no longer the one of `before`."""
    return [file for file, signature in before.items() if _signature(file) != signature]


def touched_since(moment: float, files: Iterable[Path]) -> list[Path]:
    """Return the files that were written, replaced or removed after `moment`, in seconds since the epoch.

    A time that is yet to come is that of a clock that was set back since, and tells nothing.
    """
    found, now = signatures(files), time.time_ns()
    return [file for file, seen in found.items() if seen is None or moment * 1e9 < seen[1] <= now]


def imports_began() -> float:
    """Return the moment, in seconds since the epoch, before which this process had imported none of our modules."""
    return find_process(os.getpid()).started_at + _IMPORTS_BEGIN_S


def _signature(file: Path) -> Signature:
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
