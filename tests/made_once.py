"""Folders that are slow to make and that tests of several processes share, kept under .loopline/."""

from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from tasks.core.records.files import replacing

KEPT = Path(__file__).resolve().parents[1] / ".loopline" / "tests"


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """Return the folder `name`, for reading only. The first process that asks makes it, and others wait."""
    folder = KEPT / name
    with FileLock(KEPT / f"{name}.lock"):
        if not folder.exists():
            with replacing(folder) as temporary:
                make(temporary)
    return folder
