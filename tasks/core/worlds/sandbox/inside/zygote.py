"""The zygote: a small, single-threaded process that forks one REPL process per request.

Forking from it costs about a millisecond and shares its memory, whatever size the pipeline's own process has.
It ends, and every REPL process with it, when its control socket does.
"""

import gc
import os
import select
import socket
import struct
import sys
import warnings
from importlib import import_module
from typing import Any

from .frozen_system import FrozenSystem
from .interpreter import Channel, Interpreter
from .jail import Jail
from .reaping import end_child

REQUEST = struct.Struct("!cqd")
"""b"S", seed, clock with the REPL's socket beside it; or b"E", pid, seconds that it may take to end by itself."""
REPLY = struct.Struct("!qq")
"""To b"S": pid, 0. To b"E": exit status and peak memory as `reaping.end_child` gives them."""

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
_HIDDEN = ("ctypes", "_ctypes", "_posixsubprocess", "inside")


def main(control_descriptor: int, limits: dict[str, Any]) -> None:
    """Serve on the control socket until it ends. `limits` holds SandboxLimits' fields and "confinement"."""
    os.chdir("/")
    os.environ.clear()
    for name in _PRELOADED:
        import_module(name)
    warnings.simplefilter("ignore")
    zygote = Zygote(socket.socket(fileno=control_descriptor), limits)
    _hide()
    gc.collect()
    gc.freeze()  # a collection in a child would write to, and so copy, every shared page
    zygote.serve()


def _hide() -> None:
    """Leave agents' code no way to import what it has no use for. The jail does not rest on it."""
    for name in [name for name in sys.modules if name.partition(".")[0] in _HIDDEN]:
        del sys.modules[name]
    sys.path.clear()
    sys.argv[:] = [""]
    sys.stdin = None  # type: ignore[assignment]
    sys.unraisablehook = lambda _: None


class Zygote:
    """Forks REPL processes and is the only one to wait for them, so that a pid it knows is never another process's."""

    def __init__(self, control: socket.socket, limits: dict[str, Any]) -> None:
        self._control = control
        self._limits = limits
        self._jail = Jail(limits["confinement"], limits["memory_bytes"], limits["cpu_seconds_per_repl"])
        self._system = FrozenSystem()
        self._system.install()
        self._children: set[int] = set()

    def serve(self) -> None:
        """Answer requests until the socket or the parent is gone; then end all children."""
        parent = os.getppid()
        try:
            while os.getppid() == parent:
                # A process that the parent forked may hold the socket open, so the parent itself is looked at too.
                if select.select([self._control], [], [], 1.0)[0] and not self._answer():
                    break
        finally:
            for pid in list(self._children):
                self._end(pid, 0.0)

    def _answer(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self._control, REQUEST.size, 1)
        if len(data) != REQUEST.size:
            return False
        command, number, clock = REQUEST.unpack(data)
        if command == b"S":
            reply = REPLY.pack(self._fork(descriptors[0], number, clock), 0)
        else:
            reply = REPLY.pack(*self._end(number, clock))
        self._control.sendall(reply)
        return True

    def _fork(self, descriptor: int, seed: int, clock: float) -> int:
        zygote = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                self._become_repl(Channel(descriptor, self._limits["request_bytes"]), descriptor, zygote, seed, clock)
            finally:
                os._exit(70)
        os.close(descriptor)
        self._children.add(pid)
        return pid

    def _become_repl(self, channel: Channel, descriptor: int, zygote: int, seed: int, clock: float) -> None:
        try:
            self._system.start(seed, clock)
            confinement = self._jail.shut(descriptor, zygote)
        except Exception as error:
            channel.send({"fault": f"{type(error).__name__}: {error}"})
            return
        channel.send({"ready": confinement})
        Interpreter(channel, self._limits["output_chars"], self._limits["error_chars"]).serve()

    def _end(self, pid: int, patience: float) -> tuple[int, int]:
        if pid not in self._children:
            return 0, 0
        self._children.discard(pid)
        return end_child(pid, patience)
