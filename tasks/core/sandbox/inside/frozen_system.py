"""A clock, entropy and time zone that are the same in every run, so that output does not depend on the machine."""

import ctypes
import datetime
import gc
import os
import random
import time
from typing import Any

_real_localtime, _real_gmtime, _real_strftime = time.localtime, time.gmtime, time.strftime


class FrozenSystem:
    """A frozen clock and a source of random bytes that `install` puts in place of the system's.

    The clock stands still; only `time.sleep(seconds)` advances it, at once and without waiting.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._elapsed = 0.0
        self._bytes = random.Random(0)

    def start(self, seed: int, now: float) -> None:
        """Set a REPL's clock (`now`, POSIX seconds, UTC) and the seed of its randomness."""
        self._now = now
        self._elapsed = 0.0
        self._bytes = random.Random(f"bytes {seed}")
        random.seed(seed)

    def install(self) -> None:
        """Replace the functions of `time`, `datetime` and `os` that read the machine's clock and entropy."""
        os.environ["TZ"] = "UTC"
        time.tzset()
        time.time = self._time
        time.time_ns = lambda: int(self._time() * 1e9)
        time.sleep = self._sleep  # type: ignore[assignment]
        for name in ("monotonic", "perf_counter", "process_time", "thread_time"):
            setattr(time, name, lambda: self._elapsed)
            setattr(time, name + "_ns", lambda: int(self._elapsed * 1e9))
        time.localtime = lambda seconds=None: _real_localtime(self._time() if seconds is None else seconds)
        time.gmtime = lambda seconds=None: _real_gmtime(self._time() if seconds is None else seconds)
        time.ctime = lambda seconds=None: time.asctime(time.localtime(seconds))
        time.strftime = lambda form, when=None: _real_strftime(form, when or time.localtime())  # type: ignore[assignment]
        os.urandom = lambda size: self._bytes.randbytes(size)
        random._urandom = os.urandom  # type: ignore[attr-defined]
        self._freeze_datetime()

    def _freeze_datetime(self) -> None:
        # A subclass would fail isinstance(datetime.now(), date) and print a different name, so this changes the type
        # itself.
        def now(cls: type[datetime.datetime], tz: datetime.tzinfo | None = None) -> datetime.datetime:
            return cls.fromtimestamp(self._time(), tz)

        def utcnow(cls: type[datetime.datetime]) -> datetime.datetime:
            return cls.utcfromtimestamp(self._time())

        namespace: dict[str, Any] = gc.get_referents(datetime.datetime.__dict__)[0]
        namespace["now"] = classmethod(now)
        namespace["utcnow"] = classmethod(utcnow)
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(datetime.datetime))

    def _time(self) -> float:
        return self._now + self._elapsed

    def _sleep(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        self._elapsed += seconds
