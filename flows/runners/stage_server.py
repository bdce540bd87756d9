"""The process that runs the stages of one `dvc repro`, so that models, engines and worlds are loaded once.

    python -m flows.runners.stage_server LISTENER PID STARTED     (what `python -m flows.stage` starts)

It runs one stage at a time, with the standard streams, DVC_* variables and signals of the process that asks, and ends
with the `dvc repro` PID, however that one ends. It also ends, having closed all it holds, after a stage that failed or
was interrupted, when the process that asked is gone, and when asked by a project whose code or environment is another
than when it started: the next stage then starts another server.
"""

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType

from flows.runners.stage_client import SOCKETS, Request, socket_of
from flows.signals import Termination, exit_surely, resend_lost_interrupts
from tasks.core.processes.running import Process
from tasks.core.records.files import fingerprint

CODE = Path(__file__).resolve().parents[2]
POLL_S = 0.1
PREDECESSOR_S = 60


def main() -> int:
    """Serve until there is a reason to end."""
    listener, pid, started = map(int, sys.argv[1:])
    server = StageServer(Process(pid, started))
    with socket.socket(fileno=listener) as waiting, contextlib.suppress(KeyboardInterrupt), contextlib.closing(server):
        _await_predecessors()
        with _last_words():
            while server.serves(waiting.accept()[0]):
                pass
    return 0


@contextlib.contextmanager
def _last_words() -> Iterator[None]:
    """Write into the log what ends this process, while the connection lives: at its end the client reads the log."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        traceback.print_exc()
        sys.exit(1)


class StageServer:
    """Runs the stages of `repro`."""

    def __init__(self, repro: Process) -> None:
        """Open a server for `repro`. Raises ProcessLookupError where it is gone already."""
        self._about = (_code(), str(Path.cwd()), _inherited(os.environ))
        # Late, so that all code is looked at before it is loaded: a change after that ends this process.
        from tasks.core.interfaces.stage import ProcessCache
        from tasks.core.processes.resources import spare_old_objects

        self._repro, self._cache = repro, ProcessCache()
        self._ending = threading.Lock()  # held for good once the end has begun, which nothing of ours may interrupt
        self._held = False
        self._connection: socket.socket | None = None
        spare_old_objects()
        resend_lost_interrupts()
        signal.signal(signal.SIGTERM, self._exit)
        signal.signal(signal.SIGTSTP, self._hold)
        signal.signal(signal.SIGCONT, self._go_on)
        self._end_with(repro)

    def close(self) -> None:
        """Close all that the stages have loaded, and let the next server begin."""
        socket_of(self._repro).unlink(missing_ok=True)
        self._cache.close()
        if self._connection is not None:
            self._connection.close()
        gc.freeze()  # else Python looks through all that torch loaded, for seconds, only to exit

    def serves(self, connection: socket.socket) -> bool:
        """Run the requested stage here; return whether this process can run another stage."""
        self._connection = connection
        request, streams = _received(connection)
        if request is None:
            return True
        if self._about != (_code(), request["folder"], _inherited(request["variables"])):
            return False
        connection.sendall(f"{os.getpid()}\n".encode())
        with _lent(streams):
            with self._watched(connection):
                code = self._run(request)
            if code:
                self._ending.acquire(blocking=False)
                self._cache.close()
        connection.sendall(f"{code}\n".encode())
        return code == 0

    def _run(self, request: Request) -> int:
        """Return the stage's exit code."""
        try:
            from flows.dag.dvc_seam import dvc_variables
            from flows.runners.single_stage import run_stage

            with dvc_variables(request["variables"]):
                return run_stage(request["arguments"], self._cache, self._repro)
        except SystemExit as end:
            if isinstance(end, Termination):
                end.arrived = True
            return end.code if isinstance(end.code, int) else 1
        except Exception:
            traceback.print_exc()
            return 1

    @contextlib.contextmanager
    def _watched(self, connection: socket.socket) -> Iterator[None]:
        """End this process when the process at the other end ends while the block runs."""
        over = threading.Event()

        def watch() -> None:
            connection.recv(1)  # nothing more is sent: this returns when the other end, or the block, is gone
            if not over.is_set():
                self._end()

        watching = threading.Thread(target=watch, daemon=True)
        watching.start()
        try:
            yield
        finally:
            over.set()
            connection.shutdown(socket.SHUT_RD)
            watching.join()

    def _end_with(self, repro: Process) -> None:
        handle = os.pidfd_open(repro.pid)
        if not repro.is_running:
            raise ProcessLookupError(f"process {repro.pid} is gone")

        def watch() -> None:
            select.select([handle], [], [])
            self._end()

        threading.Thread(target=watch, daemon=True).start()

    def _end(self) -> None:
        if self._ending.acquire(blocking=False):
            os.kill(os.getpid(), signal.SIGTERM)

    def _hold(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-Z: the stage waits, while the threads that watch for the end of others go on, as they must.

        A process that was stopped could not end with a `dvc repro` that is killed meanwhile. Servers and ranks of the
        stage end what they have in hand.
        """
        self._held = True
        while self._held:
            time.sleep(POLL_S)

    def _go_on(self, number: int, frame: FrameType | None) -> None:
        self._held = False

    def _exit(self, number: int, frame: FrameType | None) -> None:
        self._ending.acquire(blocking=False)
        exit_surely()


def _code() -> frozenset[tuple[str, int, int, int]]:
    """Names, sizes, times and inodes of the files of the project's code."""
    files = (*fingerprint(CODE / "flows"), *fingerprint(CODE / "tasks"))
    return frozenset(file for file in files if not file[0].endswith(".pyc"))


def _inherited(variables: Mapping[str, str]) -> dict[str, str]:
    """Return all variables except those that DVC sets anew for each stage."""
    return {name: value for name, value in variables.items() if not name.startswith("DVC_")}


def _received(connection: socket.socket) -> tuple[Request | None, list[int]]:
    """Return a request and its file descriptors for input, output and error; None when the other end has gone."""
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile(encoding="utf-8") as lines:
        line = lines.readline()
    return (json.loads(line) if line.endswith("\n") else None), streams


@contextlib.contextmanager
def _lent(streams: list[int]) -> Iterator[None]:
    """Make `streams` this process's standard input, output and error for the time of the block, and close them."""
    own = [os.dup(number) for number in range(3)]
    _stand_in(streams)
    try:
        yield
    finally:
        _stand_in(own)


def _stand_in(streams: list[int]) -> None:
    with contextlib.suppress(OSError):  # nobody reads any more
        sys.stdout.flush()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]


def _await_predecessors() -> None:
    """Wait for servers that are ending, as their `dvc repro` is gone: they may hold the checkout, or a GPU's memory."""
    deadline = time.monotonic() + PREDECESSOR_S
    for path in SOCKETS.iterdir():
        pid, _, started = path.name.partition("-")
        if Process(int(pid), int(started)).is_running:
            continue
        while _is_open(path) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        path.unlink(missing_ok=True)


def _is_open(path: Path) -> bool:
    """Return whether a process has this socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except BlockingIOError:
            return True
        except OSError:
            return False
    return True


if __name__ == "__main__":
    sys.exit(main())
