"""Processes of this machine: whether one still runs, which one runs the pipeline, and ending with one's parent.

Imports the standard library only, except off Linux: `python -m flows.stage` pays for each import at every stage, and
any interpreter can run it.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """A process; its start tells it from a later one with the same pid."""

    pid: int
    started: int
    """In clock ticks since the machine's start, which setting the clock does not change; off Linux since the epoch."""

    @property
    def is_running(self) -> bool:
        """Whether it still runs; a process that only waits to be reaped does not."""
        with suppress(OSError):
            status = _status(self.pid)
            return status.started == self.started and not status.is_zombie
        return False

    @property
    def started_at(self) -> float:
        """Its start in seconds since the epoch, by the clock as it is set now."""
        seconds = self.started / TICKS_PER_S
        if sys.platform != "linux":
            return seconds
        return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - seconds)


def find_process(pid: int) -> Process:
    """Return process `pid`. Raises OSError where there is none."""
    return Process(pid, _status(pid).started)


def exists(pid: int) -> bool:
    """Return whether any process has this pid."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def pipeline_process() -> Process:
    """Return the process that runs the pipeline: `dvc repro` for one of its stages, else this process.

    DVC starts a stage with DVC_STAGE in its environment; the pipeline is the nearest ancestor that was started without.
    """
    pid = os.getpid()
    with suppress(PermissionError):
        while _is_stage(pid) and (parent := _status(pid).parent):
            pid = parent
    return find_process(pid)


def dvc_above() -> Process | None:
    """Return the `dvc` whose stage this process is.

    None where the pipeline's process is none (it may have been killed: then what it started has other ancestors), or
    where that can't be found out.
    """
    if "DVC_STAGE" not in os.environ:
        return None
    with suppress(OSError):
        process = pipeline_process()
        return process if any(Path(word).name == "dvc" for word in _command(process.pid)) else None
    return None


class _Status(NamedTuple):
    is_zombie: bool
    parent: int
    started: int


def _status(pid: int) -> _Status:
    """Return the process's status. Raises OSError if there is no such process."""
    if sys.platform != "linux":
        seen = _seen_by_psutil(pid)
        return _Status(seen["status"] == "zombie", seen["ppid"], round(seen["create_time"] * TICKS_PER_S))
    # Before the third field (the state) stands a name, which may hold anything.
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return _Status(fields[0] == "Z", int(fields[1]), int(fields[19]))


def _is_stage(pid: int) -> bool:
    """Return whether the process was started with DVC_STAGE. Raises OSError where that can't be found out."""
    if sys.platform != "linux":
        return "DVC_STAGE" in (_seen_by_psutil(pid)["environ"] or {})
    return b"DVC_STAGE=" in Path(f"/proc/{pid}/environ").read_bytes()


def _command(pid: int) -> list[str]:
    """Return the command line. Raises OSError where it can't be read."""
    if sys.platform != "linux":
        return _seen_by_psutil(pid)["cmdline"] or []
    return [os.fsdecode(word) for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]


def _seen_by_psutil(pid: int) -> dict[str, Any]:
    import psutil

    try:
        return dict(psutil.Process(pid).as_dict(["status", "ppid", "create_time", "environ", "cmdline"]))
    except psutil.NoSuchProcess:
        raise ProcessLookupError(f"process {pid} is gone") from None


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
