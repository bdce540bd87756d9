"""The end of a command of ours that is told to end. Imports the standard library only, for the sake of its start."""

import os
import signal
import sys
import threading
from types import FrameType

from tasks.core.processes.parent_death import parent_death_signal

RESEND_S = 0.05


def stop_cleanly_on_signals() -> None:
    """`exit_on_sigterm`, and on Linux a SIGTERM when the parent dies: killing `dvc repro` must not leave its stage."""
    exit_on_sigterm()
    parent_death_signal()()
    if sys.platform == "linux" and os.getppid() == 1 and os.environ.get("DVC_STAGE"):
        sys.exit(128 + signal.SIGTERM)


def exit_on_sigterm() -> None:
    """Make SIGTERM raise SystemExit, so that `finally` blocks close models, engines and agents' processes."""
    resend_lost_signals()
    signal.signal(signal.SIGTERM, _exit)


def resend_lost_signals() -> None:
    """Send SIGTERM or SIGINT again where Python drops what the handler raised: in a `__del__`, a callback of C's.

    A `dvc repro` or a study that is killed while its run imports, which calls many, left that run at work.
    """
    others = sys.unraisablehook

    def resend(lost: "sys.UnraisableHookArgs") -> None:
        if issubclass(lost.exc_type, (SystemExit, KeyboardInterrupt)):
            number = signal.SIGTERM if issubclass(lost.exc_type, SystemExit) else signal.SIGINT
            threading.Timer(RESEND_S, os.kill, (os.getpid(), number)).start()
        else:
            others(lost)

    sys.unraisablehook = resend


def _exit(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)
