"""Folders that take long to make and that tests of several processes share, kept under .loopline/."""

from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from tasks.core.records.files import replacing

KEPT = Path(__file__).resolve().parents[1] / ".loopline" / "tests"


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """The folder `name`, for reading only: made by the first process that asks, for which others wait."""
    folder = KEPT / name
    with FileLock(KEPT / f"{name}.lock"):
        if not folder.exists():
            with replacing(folder) as temporary:
                make(temporary)
    return folder
