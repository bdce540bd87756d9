"""A process that forks others on request, and is the only one to wait for them."""

import contextlib
import ctypes
import os
import select
import signal
import socket
import sys
from typing import Any, NoReturn

from tasks.core.worlds.appworld.inside.episodes import wire
from tasks.core.worlds.sandbox.inside.reaping import end_child

_PR_SET_PDEATHSIG = 1


class Forker:
    """Serves a control socket.

    {"fork": kind, ...} with descriptors beside it -> {"pid": n}; {"end": pid, "patience": seconds} -> {"status": n,
    "peak": bytes} as `reaping.end_child` gives them. Whatever goes wrong in a child is the child's affair: it says
    {"fault": text} on its own first descriptor.
    """

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self._children: set[int] = set()

    def serve(self) -> None:
        """Answer until the socket or the parent is gone; then end all children."""
        parent = os.getppid()
        try:
            # A process that the parent forked may hold the socket open, so the parent itself is looked at too.
            while os.getppid() == parent:
                if select.select([self.control], [], [], 1.0)[0]:
                    self._answer()
        except (wire.PeerGone, OSError):
            pass
        finally:
            for pid in list(self._children):
                self._end(pid, 0.0)

    def become(self, request: dict[str, Any], descriptors: list[int], parent: int) -> None:
        """Be the child: runs in it, and the child ends when it returns."""
        raise NotImplementedError

    def _answer(self) -> None:
        request, descriptors = wire.receive_with_descriptors(self.control)
        try:
            if "end" in request:
                status, peak = self._end(request["end"], request["patience"])
                wire.send(self.control.fileno(), {"status": status, "peak": peak})
            else:
                wire.send(self.control.fileno(), {"pid": self._fork(request, descriptors)})
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
        except wire.PeerGone:
            code = 0
        except BaseException as error:
            with contextlib.suppress(BaseException):
                wire.send(descriptors[0], {"fault": f"{type(error).__name__}: {error}"})
        finally:
            os._exit(code)

    def _end(self, pid: int, patience: float) -> tuple[int, int]:
        if pid not in self._children:
            return 0, 0
        self._children.discard(pid)
        return end_child(pid, patience)


def die_with(parent: int) -> None:
    """Let the kernel kill this process when `parent`, which forked it, ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def keep_only(descriptors: list[int]) -> None:
    """Close every other descriptor but the standard ones."""
    begin = 3
    for descriptor in sorted(descriptors):
        os.closerange(begin, descriptor)
        begin = descriptor + 1
    os.closerange(begin, max(begin, 1024))
