"""The end of a command of ours that is told to end. Imports the standard library only, for the sake of its start."""

import os
import signal
import sys
from types import FrameType

from tasks.core.processes.parent_death import parent_death_signal


def stop_cleanly_on_signals() -> None:
    """Make SIGTERM raise SystemExit, so that `finally` blocks close models, engines and agents' processes.

    And on Linux ask for a SIGTERM when the parent dies: killing `dvc repro` must not leave its stage running.
    """
    signal.signal(signal.SIGTERM, _exit)
    parent_death_signal()()
    if sys.platform == "linux" and os.getppid() == 1 and os.environ.get("DVC_STAGE"):
        sys.exit(128 + signal.SIGTERM)


def _exit(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)
