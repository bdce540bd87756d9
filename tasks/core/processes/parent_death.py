"""A process that ends with the one that started it, however that one ends."""

import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def parent_death_signal(number: signal.Signals = signal.SIGTERM) -> Callable[[], None]:
    """What makes the process that calls it get signal `number` when its parent dies; on Linux only.

    Usable as `preexec_fn`: the library is loaded before the fork. It also outlives an exec.
    """
    if sys.platform != "linux":
        return lambda: None
    import ctypes

    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(_PR_SET_PDEATHSIG, number)
