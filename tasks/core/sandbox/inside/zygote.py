"""The zygote: a small, single-threaded process that forks one REPL process per request.

A fork takes about a millisecond and shares memory with it, however large the pipeline's process is. When its control
socket closes, the zygote and all REPL processes end.
"""

import os
import socket
import sys
import warnings
from importlib import import_module
from typing import Any

from tasks.core.confinement.inside.channel import Channel
from tasks.core.confinement.inside.forking import Forker
from tasks.core.confinement.inside.jail import Jail
from tasks.core.sandbox.inside.frozen_system import FrozenSystem
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
