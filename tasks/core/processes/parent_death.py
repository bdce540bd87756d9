"""Processes that end when their parent ends, however it ends. Standard library only."""

import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def parent_death_signal(number: signal.Signals = signal.SIGTERM) -> Callable[[], None]:
    """Return a function that makes the kernel send signal `number` to the caller when its parent dies; Linux only.

    Suitable as `preexec_fn`: the library is loaded before the fork. The setting survives an exec, but not a change of
    user.
    """
    if sys.platform != "linux":
        return lambda: None
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, number)


def killed_with_parent() -> Callable[[int], None]:
    """Return a function that binds a forked process to its parent's pid: the kernel kills it when the parent ends.

    If the parent has already ended, the process exits at once.
    """
    ask_for_kill = parent_death_signal(signal.SIGKILL)

    def bind(parent: int) -> None:
        ask_for_kill()
        if os.getppid() != parent:
            os._exit(0)

    return bind
