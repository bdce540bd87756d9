"""The pipeline's end of the zygote (see `inside.zygote`): start it, ask it for REPL processes, end them."""

import dataclasses
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

from tasks.core.interfaces.world import WorldFault
from tasks.core.worlds.sandbox.inside.zygote import REPLY, REQUEST
from tasks.core.worlds.sandbox.interface import SandboxLimits

# -S and -P keep site-packages and the working directory away; -I would ignore PYTHONHASHSEED.
_FLAGS = ("-S", "-s", "-P")
_START = "import sys, json; sys.path.insert(0, {folder!r}); from inside.zygote import main; main({control}, {limits})"
_KEPT_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME")
_ANSWER_SECONDS = 60.0


class ForkServer:
    """One live zygote. Thread-safe."""

    def __init__(self, limits: SandboxLimits, confinement: str) -> None:
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair()
        self._control.settimeout(_ANSWER_SECONDS)
        with theirs:
            self._process = _start_zygote(theirs.fileno(), limits, confinement)

    def fork(self, theirs: socket.socket, seed: int, clock: float) -> int:
        """Start a REPL process that talks on `theirs`; returns its pid. Raises WorldFault."""
        return self._ask(b"S", seed, clock, [theirs.fileno()])[0]

    def end(self, pid: int, patience: float = 0.0) -> tuple[int, int]:
        """Kill the process if it lives after `patience` seconds; returns what `end_child` does. Raises WorldFault."""
        return self._ask(b"E", pid, patience, [])

    def close(self) -> None:
        """End the zygote and all its processes. Idempotent."""
        with self._lock:
            self._control.close()
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _ask(self, command: bytes, number: int, clock: float, descriptors: list[int]) -> tuple[int, int]:
        with self._lock:
            try:
                socket.send_fds(self._control, [REQUEST.pack(command, number, clock)], descriptors)
                reply = self._control.recv(REPLY.size, socket.MSG_WAITALL)
            except OSError as error:
                raise WorldFault(f"the sandbox's zygote does not answer: {error}") from error
            if len(reply) != REPLY.size:
                raise WorldFault("the sandbox's zygote died")
            first, second = REPLY.unpack(reply)
            return first, second


def _start_zygote(control: int, limits: SandboxLimits, confinement: str) -> "subprocess.Popen[bytes]":
    settings = {**dataclasses.asdict(limits), "confinement": confinement}
    command = _START.format(
        folder=str(Path(__file__).parent), control=control, limits=f"json.loads({json.dumps(settings)!r})"
    )
    environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    return subprocess.Popen(
        [sys.executable, *_FLAGS, "-c", command],
        env={**environment, "PYTHONHASHSEED": "0"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[control],
        start_new_session=True,  # Ctrl-C in the terminal is for the pipeline, which then closes the sandbox
    )
