"""The process that runs the pipeline, which servers belong to, and whether a process still runs."""

import psutil

_CLOCK_S = 2.0
"""Start times may be off by this after the machine's clock was set."""


def pipeline_process() -> tuple[int, float]:
    """(pid, start time) of the process that runs the pipeline: `dvc repro` for one of its stages, else this one.

    DVC starts a stage with DVC_STAGE in its environment; the pipeline is the nearest ancestor that was started without.
    """
    process = psutil.Process()
    try:
        while "DVC_STAGE" in process.environ():
            parent = process.parent()
            if parent is None:
                break
            process = parent
    except psutil.AccessDenied:
        pass
    return process.pid, float(process.create_time())


def is_running(pid: int, started: float) -> bool:
    """Whether process `pid`, started at that time, still runs (a pid alone may be another process by now)."""
    try:
        process = psutil.Process(pid)
        return bool(abs(process.create_time() - started) < _CLOCK_S) and bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def start_time(pid: int) -> float:
    """Start of process `pid`, in seconds since the epoch."""
    return float(psutil.Process(pid).create_time())
