"""A process that forks other processes on request and alone waits for them."""

import contextlib
import ctypes
import gc
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from tasks.core.confinement.inside import frames
from tasks.core.processes.running import killed_with_parent

_MADV_COLLAPSE = 25  # Linux 6.1
_HUGE = 2**21


def collapse() -> None:
    """Gather this process's memory into 2 MB pages, where the kernel can.

    A fork copies one entry per page: with 512 times fewer pages, a fork of the engine takes a third of the time. A
    child that writes still copies 4 KB at a time. Only speed changes, so failures are ignored.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, ValueError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for begin, end in _private_ranges():
            for address in range(-(-begin // _HUGE) * _HUGE, end - _HUGE + 1, _HUGE):
                libc.madvise(address, _HUGE, _MADV_COLLAPSE)


def _private_ranges() -> list[tuple[int, int]]:
    ranges = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        fields = line.split()
        if fields[1] == "rw-p" and (len(fields) < 6 or fields[5] == "[heap]"):
            begin, _, end = fields[0].partition("-")
            ranges.append((int(begin, 16), int(end, 16)))
    return ranges


class Forker:
    """A server on a control socket that forks and ends children.

    {"fork": kind, ...} with descriptors attached -> {"pid": n}; {"end": pid, "patience": seconds} -> {"status": n,
    "peak": bytes} as returned by `reaping.end_child`. A failure in a child is reported by the child: it sends {"fault":
    text} on its own first descriptor.
    """

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        gc.disable()  # until `ready`: nothing loaded so far is garbage
        self.die_with = killed_with_parent()
        """Called in a child with its parent's pid, except where a jail does it."""
        self._children: set[int] = set()

    def ready(self, **greeting: Any) -> None:
        """Prepare the memory that children will share, then announce that the process accepts requests."""
        gc.collect()
        gc.freeze()  # a collection in a child would write to every shared page, and so copy it
        gc.enable()
        collapse()
        frames.send(self.control.fileno(), {"ready": True, **greeting})

    def serve(self) -> None:
        """Answer requests until the socket closes or the parent dies; then end all children."""
        parent = os.getppid()
        try:
            # Another child of the parent may hold the socket open, so the parent is checked too.
            while os.getppid() == parent:
                if select.select([self.control], [], [], 1.0)[0]:
                    self._answer()
        except (frames.PeerGone, OSError):
            pass
        finally:
            for pid in list(self._children):
                self._end(pid, 0.0)

    def become(self, request: dict[str, Any], descriptors: list[int], parent: int) -> None:
        """Act as the child. Runs in the child, which exits when it returns."""
        raise NotImplementedError

    def _answer(self) -> None:
        request, descriptors = frames.receive_with_descriptors(self.control)
        try:
            if "end" in request:
                status, peak = self._end(request["end"], request["patience"])
                frames.send(self.control.fileno(), {"status": status, "peak": peak})
            else:
                frames.send(self.control.fileno(), {"pid": self._fork(request, descriptors)})
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _fork(self, request: dict[str, Any], descriptors: list[int]) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._child(request, descriptors, parent)
        self._children.add(pid)
        return pid

    def _child(self, request: dict[str, Any], descriptors: list[int], parent: int) -> NoReturn:
        code = 70
        try:
            self.become(request, descriptors, parent)
            code = 0
        except frames.PeerGone:
            code = 0
        except BaseException as error:
            with contextlib.suppress(BaseException):
                frames.send(descriptors[0], {"fault": f"{type(error).__name__}: {error}"})
        finally:
            os._exit(code)

    def _end(self, pid: int, patience: float) -> tuple[int, int]:
        if pid not in self._children:
            return 0, 0
        self._children.discard(pid)
        return end_child(pid, patience)


KILLED = -1
"""Stands for an exit status: the process was still alive and we killed it."""
_LOOK_SECONDS = 0.001


def end_child(pid: int, patience: float) -> tuple[int, int]:
    """Wait up to `patience` seconds for the child to exit by itself, then kill it.

    Returns its exit status as os.waitpid gives it, or KILLED, and its peak resident memory in bytes. Patience is for a
    child whose socket has closed: it exits within a moment, unless its code closed the socket and lives on.
    """
    deadline = _now() + patience
    ended, status, usage = os.wait4(pid, os.WNOHANG)
    while not ended and _now() < deadline:
        select.select([], [], [], _LOOK_SECONDS)
        ended, status, usage = os.wait4(pid, os.WNOHANG)
    if not ended:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            status = KILLED
    return status, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _now() -> float:
    # Where agents' code runs, time.monotonic and time.sleep belong to a frozen clock.
    return time.clock_gettime(time.CLOCK_MONOTONIC)
