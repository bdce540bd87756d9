"""The zygote: a small, single-threaded process that forks one REPL process per request.

Forking from it costs about a millisecond and shares its memory, whatever size the pipeline's own process has.
It ends, and every REPL process with it, when its control socket does.
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

# Nothing can be opened later, so what agents may import is imported now.
_PRELOADED = (
    "json",
    "re",
    "datetime",
    "math",
    "collections",
    "itertools",
    "functools",
    "random",
    "string",
    "time",
    "calendar",
    "statistics",
    "decimal",
    "fractions",
    "textwrap",
    "pprint",
    "copy",
    "heapq",
    "bisect",
    "operator",
    "typing",
    "dataclasses",
    "enum",
    "uuid",
    "hashlib",
    "base64",
    "csv",
    "io",
    "traceback",
    "urllib.parse",
    "html",
    "difflib",
    "contextlib",
    "abc",
    "numbers",
    "types",
    "unicodedata",
    "ast",
    "collections.abc",
    "secrets",
    "locale",
    "_strptime",
    "cmath",
    "array",
    "struct",
    "binascii",
    "keyword",
    "threading",
    "queue",
    "logging",
    "inspect",
    "weakref",
    "encodings.ascii",
    "encodings.latin_1",
    "encodings.utf_16",
    "encodings.utf_8_sig",
    "fnmatch",
)
_HIDDEN = ("ctypes", "_ctypes", "_posixsubprocess", "tasks")


def main(control_descriptor: int, limits: dict[str, Any]) -> None:
    """Serve on the control socket until it ends. `limits` holds SandboxLimits' fields and "confinement"."""
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
    """Leave agents' code no way to import what it has no use for. The jail does not rest on it."""
    for name in [name for name in sys.modules if name.partition(".")[0] in _HIDDEN]:
        del sys.modules[name]
    sys.path.clear()
    sys.argv[:] = [""]
    sys.stdin = None  # type: ignore[assignment]
    sys.unraisablehook = lambda _: None


class Zygote(Forker):
    """Forks REPL processes, asked with their `seed` and `clock` (POSIX seconds)."""

    def __init__(self, control: socket.socket, limits: dict[str, Any]) -> None:
        super().__init__(control)
        self._limits = limits
        self.jail = Jail(limits["confinement"], limits["memory_bytes"], limits["cpu_seconds_per_repl"])
        self._system = FrozenSystem()
        self._system.install()

    def become(self, request: dict[str, Any], descriptors: list[int], parent: int) -> None:
        """A REPL process on the one descriptor."""
        channel = Channel(descriptors[0], self._limits["request_bytes"])
        self._system.start(request["seed"], request["clock"])
        channel.send({"ready": self.jail.shut(descriptors[0], parent)})
        Interpreter(channel, self._limits["output_chars"], self._limits["error_chars"]).serve()
