"""End a child process, and tell an end of its own from ours."""

import contextlib
import os
import signal
import sys
import time

KILLED = -1
"""In the place of an exit status: the process lived, and was killed by us."""
_LOOK_SECONDS = 0.001


def end_child(pid: int, patience: float) -> tuple[int, int]:
    """Wait up to `patience` seconds for the child to end by itself, then kill it.

    Returns its exit status as os.waitpid gives it, or KILLED, and its peak resident memory in bytes. Patience is for
    a child whose socket has closed: it ends in a moment, unless its code closed the socket and lives on.
    """
    deadline = time.monotonic() + patience
    ended, status, usage = os.wait4(pid, os.WNOHANG)
    while not ended and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        ended, status, usage = os.wait4(pid, os.WNOHANG)
    if not ended:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            status = KILLED
    return status, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
