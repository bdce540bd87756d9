"""Clean ends of commands on SIGTERM and SIGINT. Imports the standard library only, so that commands start quickly."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn

from tasks.core.processes.running import dvc_above, parent_death_signal

RESEND_S = 0.05
LOST_AFTER = 4
"""Times in a row, RESEND_S apart, that an exception is found nowhere before it counts as lost."""


def stop_cleanly_on_signals() -> None:
    """Shut down cleanly on SIGTERM, and on Linux when the parent dies: a killed `dvc repro` leaves no stage."""
    exit_on_sigterm()
    parent_death_signal()()
    # Its parent may be gone already, and process 1 have taken it over, or be in a container the `dvc repro` itself.
    if sys.platform == "linux" and os.getppid() == 1 and os.environ.get("DVC_STAGE") and dvc_above() is None:
        sys.exit(128 + signal.SIGTERM)


def exit_on_sigterm() -> None:
    """Make SIGTERM raise SystemExit, so that `finally` blocks close models, engines and agents' processes."""
    resend_lost_interrupts()
    signal.signal(signal.SIGTERM, _exit)


def resend_lost_interrupts() -> None:
    """Send SIGINT again where Python drops what its handler raised: in a `__del__`, a callback of C's.

    A `dvc repro` that is interrupted while its stage imports, which calls many, left that stage at work.
    """
    others = sys.unraisablehook

    def resend(lost: "sys.UnraisableHookArgs") -> None:
        if issubclass(lost.exc_type, KeyboardInterrupt):
            threading.Timer(RESEND_S, os.kill, (os.getpid(), signal.SIGINT)).start()
        elif not issubclass(lost.exc_type, Termination):  # it is sent again
            others(lost)

    sys.unraisablehook = resend


def exit_surely() -> NoReturn:
    """For a handler of SIGTERM: raise SystemExit, and send SIGTERM again if that gets lost on its way.

    Python drops what a handler raises in a `__del__`, and packages that import one another catch whatever comes.
    An exception counts as lost if no frame of the main thread handles it. Whoever catches it finally sets `arrived`.
    """
    ending = Termination(128 + signal.SIGTERM)
    threading.Thread(target=_resend_when_lost, args=(ending,), daemon=True).start()
    raise ending


class Termination(SystemExit):
    """The exception that SIGTERM raises."""

    arrived = False


def _resend_when_lost(ending: Termination) -> None:
    seen_lost = 0
    while seen_lost < LOST_AFTER:
        time.sleep(RESEND_S)
        if ending.arrived or _is_through():
            return
        seen_lost = 0 if ending in _handled() else seen_lost + 1
    os.kill(os.getpid(), signal.SIGTERM)


def _is_through() -> bool:
    """Return whether the main thread has left all code of ours, and Python waits for other threads or runs `atexit`."""
    outermost = frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        outermost, frame = frame, frame.f_back
    shutdown = threading._shutdown.__code__  # type: ignore[attr-defined]
    return outermost is None or outermost.f_code is shutdown or not threading.main_thread().is_alive()


def _handled() -> Iterator[BaseException]:
    """Yield the exception that the main thread is handling, the one in whose handling that was raised, and so on."""
    top: Any = sys._current_exceptions().get(threading.main_thread().ident or 0)
    error: BaseException | None = top[1] if isinstance(top, tuple) else top  # a tuple until Python 3.11
    while error is not None:
        yield error
        error = error.__context__


def _exit(number: int, frame: FrameType | None) -> None:
    exit_surely()
