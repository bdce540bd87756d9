"""Ending a child process, and telling its own exit from our kill."""

import contextlib
import os
import select
import signal
import sys
import time

KILLED = -1
"""Stands for an exit status: the process was still alive and we killed it."""
_LOOK_SECONDS = 0.001


def end_child(pid: int, patience: float) -> tuple[int, int]:
    """Wait up to `patience` seconds for the child to exit by itself, then kill it.

    Returns its exit status as os.waitpid gives it, or KILLED, and its peak resident memory in bytes. Patience is for a
    child whose socket has closed: it exits within a moment, unless its code closed the socket and lives on.
    """
    deadline = _now() + patience
    ended, status, usage = os.wait4(pid, os.WNOHANG)
    while not ended and _now() < deadline:
        select.select([], [], [], _LOOK_SECONDS)
        ended, status, usage = os.wait4(pid, os.WNOHANG)
    if not ended:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            status = KILLED
    return status, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _now() -> float:
    # Where agents' code runs, time.monotonic and time.sleep belong to a frozen clock.
    return time.clock_gettime(time.CLOCK_MONOTONIC)
