"""Errors of stages: which of them need one message only, which may pass, and how they reach people and processes."""

import errno
import traceback
from pathlib import Path

from tasks.core.transient import Transient

TRACEBACK = Path(".loopline/traceback.log")
"""Where the traceback of the last fault lies, in the checkout."""
DISK_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES)


class WrongArgument(ValueError):  # noqa: N818
    """An argument of a command is none, or names something that does not exist. Exit code 2."""


class StageFailed(RuntimeError):  # noqa: N818
    """A stage's body failed in another process with an error whose message says all."""


class StageFailedForNow(StageFailed, Transient):
    """The same, but trying again may help."""


def picklable_error(error: Exception) -> StageFailed:
    """Return an expected error for another process: its message, and whether it may pass."""
    return (StageFailedForNow if isinstance(error, Transient) else StageFailed)(str(error))


def is_expected(error: BaseException) -> bool:
    """Return whether the message of `error` is all that a user needs.

    That holds for our own exceptions, ValueErrors raised by our code, and a disk that is full or can't be written.
    Everything else is a fault in the program, whose traceback is wanted.
    """
    if type(error).__module__.partition(".")[0] in ("tasks", "flows"):
        return True
    if isinstance(error, OSError) and error.errno in DISK_FAULTS:
        return True
    frames = traceback.extract_tb(error.__traceback__)
    if not isinstance(error, ValueError) or not frames:
        return False
    raised_in = Path(frames[-1].filename).resolve()
    return Path(__file__).resolve().parent.parent in raised_in.parents and "site-packages" not in raised_in.parts


def in_words(error: BaseException, root: Path) -> str:
    """Return the message of an expected error; of any other one the first line, and the file with its traceback."""
    if is_expected(error) or type(error).__module__.startswith("dvc."):
        return str(error)
    lines = str(error).strip().splitlines()
    what = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    path = root / TRACEBACK
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    return f"{what} (traceback: {TRACEBACK})"


def may_pass(error: BaseException) -> bool:
    """Return whether trying again may help: not where params, artifacts or the disk are at fault."""
    return isinstance(error, Transient) or not is_expected(error)
