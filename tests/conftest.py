"""Setup for all tests: their lanes, and the number of processes of a whole run."""

import gc
import os
import re
import signal
import sys
from collections.abc import Generator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

from tasks.core.processes.resources import spare_old_objects, usable_cores

MOST_PROCESSES = 8
HERE = Path(__file__).parent
_BEFORE = pytest.StashKey[float]()
"""Processor seconds of this process and its ended children before a test."""


def pytest_configure() -> None:
    """Restore SIGINT, which a shell's background jobs ignore: tests send it to themselves and to processes they start.

    No example has a deadline: a busy machine must fail no test. Each process computes in one thread, because OpenMP's
    threads spin while one of them waits for a core: tests that ran side by side took up to 16 times as long. DVC's
    commands in new projects leave no process that reports to DVC's makers: half a second of a core each.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("DVC_NO_ANALYTICS", "true")
    spare_old_objects()
    settings.register_profile("loopline", deadline=None)
    settings.load_profile("loopline")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Switch garbage collection off during imports, and exclude their objects later: this saves a tenth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Raise UsageError for a module that changed sys.path, and for a test that its lane would miss or with two lanes.

    With a folder of tests in sys.path, processes that other tests spawn would import tests/flows as `flows`. .ci/run
    would run a test of two lanes twice.
    """
    if added := [path for path in sys.path if Path(path).is_relative_to(HERE)]:
        raise pytest.UsageError(f"a test module put {', '.join(added)} into sys.path; import `tests.` modules by name")
    all_lanes = _lanes(config)
    for item in items:
        lanes = sorted(all_lanes & {mark.name for mark in item.iter_markers()})
        if len(lanes) > 1:
            raise pytest.UsageError(f"{item.nodeid} is in the lanes {' and '.join(lanes)}; one marker is enough")
        if lanes and not _names(item.path, lanes[0]):
            raise pytest.UsageError(f"{item.nodeid} is in the lane {lanes[0]}, a word that its file does not have")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip files that do not name the lane of `-m LANE`, and folders without such files.

    Importing every test takes twenty seconds, and every conftest.py two.
    """
    lane = config.option.markexpr
    if lane not in _lanes(config):
        return None
    files = collection_path.rglob("*.py") if collection_path.is_dir() else [collection_path]
    return None if any(file.suffix != ".py" or _names(file, lane) for file in files) else True


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[_BEFORE] = sum(os.times()[:4])
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Record a test's processor time, its ended children's too: what tests cost where several share two cores."""
    try:
        return (yield)
    finally:
        item.user_properties.append(("processor_s", round(sum(os.times()[:4]) - item.stash[_BEFORE], 2)))


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the workers for `-n auto`: a process per core for all tests, none for tests named on the command line."""
    return 0 if config.args_source is pytest.Config.ArgsSource.ARGS else min(usable_cores(), MOST_PROCESSES)


def _lanes(config: pytest.Config) -> set[str]:
    return {marker.partition(":")[0] for marker in config.getini("markers") if ": a lane: " in marker}


@cache
def _names(path: Path, lane: str) -> bool:
    return re.search(rf"\b{lane}\b", path.read_text(encoding="utf-8")) is not None
