"""The zygote: a small, single-threaded process that forks one REPL process per request.

A fork takes about a millisecond and shares memory with it, however large the pipeline's process is. When its control
socket closes, the zygote and all REPL processes end.
"""

import ctypes
import datetime
import gc
import os
import random
import socket
import sys
import time
import warnings
from importlib import import_module
from typing import Any

from tasks.core.confinement.inside.channel import Channel
from tasks.core.confinement.inside.forking import Forker
from tasks.core.confinement.inside.jail import Jail
from tasks.core.sandbox.inside.interpreter import Interpreter

# Nothing can be opened later, so everything agents may import is imported now.
_PRELOADED = (
    "json", "re", "datetime", "math", "collections", "itertools", "functools", "random", "string", "time",
    "calendar", "statistics", "decimal", "fractions", "textwrap", "pprint", "copy", "heapq", "bisect", "operator",
    "typing", "dataclasses", "enum", "uuid", "hashlib", "base64", "csv", "io", "traceback", "urllib.parse",
    "html", "difflib", "contextlib", "abc", "numbers", "types", "unicodedata", "ast", "collections.abc",
    "secrets", "locale", "_strptime", "cmath", "array", "struct", "binascii", "keyword", "threading", "queue",
    "logging", "inspect", "weakref", "encodings.ascii", "encodings.latin_1", "encodings.utf_16",
    "encodings.utf_8_sig", "fnmatch",
)  # fmt: skip
_HIDDEN = ("ctypes", "_ctypes", "_posixsubprocess", "tasks")


def main(control_descriptor: int, limits: dict[str, Any]) -> None:
    """Serve on the control socket until it closes. `limits` holds SandboxLimits' fields and "confinement"."""
    os.chdir("/")
    os.environ.clear()
    for name in _PRELOADED:
        import_module(name)
    warnings.simplefilter("ignore")
    zygote = Zygote(socket.socket(fileno=control_descriptor), limits)
    _hide()
    zygote.ready(warning=zygote.jail.warning)
    zygote.serve()


def _hide() -> None:
    """Hide modules that agents' code has no use for. The jail does not depend on this."""
    for name in [name for name in sys.modules if name.partition(".")[0] in _HIDDEN]:
        del sys.modules[name]
    sys.path.clear()
    sys.argv[:] = [""]
    sys.stdin = None  # type: ignore[assignment]
    sys.unraisablehook = lambda _: None


class Zygote(Forker):
    """A forker of REPL processes; each request carries a `seed` and a `clock` (POSIX seconds)."""

    def __init__(self, control: socket.socket, limits: dict[str, Any]) -> None:
        super().__init__(control)
        self._limits = limits
        self.jail = Jail(limits["confinement"], limits["memory_bytes"], limits["cpu_seconds_per_repl"])
        self._system = FrozenSystem()
        self._system.install()

    def become(self, request: dict[str, Any], descriptors: list[int], parent: int) -> None:
        """Become a REPL process on the only descriptor."""
        channel = Channel(descriptors[0], self._limits["request_bytes"])
        self._system.start(request["seed"], request["clock"])
        channel.send({"ready": self.jail.shut(descriptors[0], parent)})
        Interpreter(channel, self._limits["output_chars"], self._limits["error_chars"]).serve()


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
