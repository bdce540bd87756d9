"""A process that ends with the one that started it, however that one ends. Standard library only."""

import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def parent_death_signal(number: signal.Signals = signal.SIGTERM) -> Callable[[], None]:
    """A function that lets the process that calls it get signal `number` when its parent dies; on Linux only.

    Usable as `preexec_fn`: the library is loaded before the fork. It also outlives an exec, but no change of user.
    """
    if sys.platform != "linux":
        return lambda: None
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, number)


def killed_with_parent() -> Callable[[int], None]:
    """A function that a forked process calls with its parent's pid: the kernel kills it when that parent ends.

    A process whose parent has ended already ends at once.
    """
    ask_for_kill = parent_death_signal(signal.SIGKILL)

    def bind(parent: int) -> None:
        ask_for_kill()
        if os.getppid() != parent:
            os._exit(0)

    return bind
