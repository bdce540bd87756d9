"""Common ground of all tests: their lanes, and over how many processes a whole run is spread."""

import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tasks.core.processes.usable_cores import usable_cores

MOST_PROCESSES = 8
HERE = Path(__file__).parent


def pytest_configure() -> None:
    """Heed SIGINT, which a shell's background jobs ignore: tests send it to themselves and to what they start.

    No example has a deadline: a busy machine must fail no test. Each process computes in one thread: OpenMP's threads
    spin for one that waits for a core, and tests, run side by side, took up to 16 times as long.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    settings.register_profile("loopline", deadline=None)
    settings.load_profile("loopline")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Raises UsageError for a test of two lanes, which .ci/run would run twice, and for a module that changed sys.path.

    With a folder of tests in it, processes that other tests spawn would import tests/flows as `flows`.
    """
    if added := [path for path in sys.path if Path(path).is_relative_to(HERE)]:
        raise pytest.UsageError(f"a test module put {', '.join(added)} into sys.path; import `tests.` modules by name")
    all_lanes = {marker.partition(":")[0] for marker in config.getini("markers") if ": a lane: " in marker}
    for item in items:
        if len(lanes := sorted(all_lanes & {mark.name for mark in item.iter_markers()})) > 1:
            raise pytest.UsageError(f"{item.nodeid} is in the lanes {' and '.join(lanes)}; one marker is enough")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Meaning of `-n auto` here: a process per core for all tests, none for those that the command line names."""
    return 0 if config.args_source is pytest.Config.ArgsSource.ARGS else min(usable_cores(), MOST_PROCESSES)
