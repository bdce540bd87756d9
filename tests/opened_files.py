"""Counts of how often a file is opened, by the kernel (inotify), which sees readers that map it into memory too."""

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_OPEN, _CLOSE = 0x20, 0x08 | 0x10
_EVENT = struct.Struct("iIII")


class Opens:
    """The number of times that any process opened a file; known when the block has ended."""

    count = 0


@contextmanager
def counted_opens(path: Path) -> Iterator[Opens]:
    """Count the times that `path` is opened while the block runs.

    Closing is watched as well, since the kernel merges equal events that follow each other.
    """
    libc, opens = ctypes.CDLL(None, use_errno=True), Opens()
    descriptor = libc.inotify_init1(os.O_NONBLOCK)
    assert descriptor >= 0 and libc.inotify_add_watch(descriptor, os.fsencode(path), _OPEN | _CLOSE) >= 0
    try:
        yield opens
        opens.count = sum(bool(mask & _OPEN) for _, mask, _, _ in _EVENT.iter_unpack(_pending(descriptor)))
    finally:
        os.close(descriptor)


def _pending(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 2**16)
    except BlockingIOError:
        return b""
