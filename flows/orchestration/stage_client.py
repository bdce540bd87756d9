"""Has a stage of `dvc repro` run in the stage server of that `dvc repro`, and starts the server for the first one.

Imports the standard library only, which takes 0.05 s. The server is in flows/orchestration/stage_server.py.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import NamedTuple, TypedDict

SOCKETS = Path(".loopline/stage_servers")
"""A socket for each `dvc repro` in this checkout. Relative to the checkout: a socket's path has at most 107 bytes."""
LOG = Path(".loopline/stage_server.log")
SWITCH = "LOOPLINE_WARM"
SERVER = "flows.orchestration.stage_server"
KILLED = 128 + signal.SIGKILL


class Process(NamedTuple):
    """A process of this machine, told from later ones with its number by when it started."""

    pid: int
    started: str
    """In clock ticks since the machine's start."""

    @property
    def socket(self) -> Path:
        """Place at which the stage server of this `dvc repro` listens."""
        return SOCKETS / f"{self.pid}-{self.started}"

    @property
    def lives(self) -> bool:
        """Whether it still runs."""
        with contextlib.suppress(OSError):
            status = _status(self.pid)
            return status[0] != "Z" and status[19] == self.started
        return False


class Request(TypedDict):
    """A question to a server, as one line of JSON, after a line that carries the three standard streams."""

    arguments: list[str]
    folder: str
    variables: dict[str, str]


def run_in_server(arguments: list[str]) -> int | None:
    """Exit code of the stage in the server of the `dvc repro` above this process; None if it could not begin there."""
    try:
        repro = repro_above()
        if repro is None:
            return None
        code = _asked(repro, arguments)
        if code is None:  # no server yet, or one that ended, perhaps because it had other code than the project has now
            _start_server(repro)
            code = _asked(repro, arguments)
    except OSError:
        return None
    return code


def repro_above() -> Process | None:
    """The `dvc repro` that this process is a stage of: the nearest ancestor that was started without DVC_STAGE.

    None where that is no `dvc` (it may have been killed: then what it started has other ancestors), and where
    LOOPLINE_WARM is 0. Raises OSError where it can't be found out.
    """
    if "DVC_STAGE" not in os.environ or os.environ.get(SWITCH) == "0":
        return None
    pid = os.getppid()
    while b"DVC_STAGE=" in Path(f"/proc/{pid}/environ").read_bytes():
        pid = int(_status(pid)[1])
    started, command = _status(pid)[19], Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return Process(pid, started) if any(word.rpartition(b"/")[2] == b"dvc" for word in command) else None


def _status(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the third (state) on; before them is a name that may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def _start_server(repro: Process) -> None:
    """Start a server for `repro`; connections wait for it from now on, or break off if it does not come up."""
    SOCKETS.mkdir(mode=0o700, parents=True, exist_ok=True)
    repro.socket.unlink(missing_ok=True)
    # The server is the pipeline's process for what it starts: not itself a stage of DVC's.
    variables = {name: value for name, value in os.environ.items() if name != "DVC_STAGE"}
    with socket.socket(socket.AF_UNIX) as listener, LOG.open("wb") as log:
        listener.bind(str(repro.socket))
        listener.listen()
        subprocess.Popen(
            [sys.executable, "-m", SERVER, str(listener.fileno()), str(repro.pid), repro.started],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[listener.fileno()],
            start_new_session=True,  # Ctrl-C is for this process, which hands it on
        )


def _asked(repro: Process, arguments: list[str]) -> int | None:
    """Exit code of the stage; None when there is no server, or it can't take the stage on."""
    request = Request(arguments=arguments, folder=str(Path.cwd()), variables=dict(os.environ))
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile(encoding="utf-8") as answers:
        try:
            connection.connect(str(repro.socket))
            socket.send_fds(connection, [b"\n"], [0, 1, 2])
            connection.sendall(json.dumps(request).encode() + b"\n")
            server = answers.readline()
        except OSError:
            return None
        if not server:
            return None
        _hand_signals_on(int(server))
        try:
            return int(answers.readline())
        except (OSError, ValueError):
            print(f"flows.stage: the stage server was killed; is memory short? (its log: {LOG})", file=sys.stderr)
            return KILLED


def _hand_signals_on(server: int) -> None:
    def hand_on(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(server, number)

    def stop(number: int, frame: FrameType | None) -> None:
        hand_on(number, frame)
        os.kill(os.getpid(), signal.SIGSTOP)  # until the shell's `fg`
        hand_on(signal.SIGCONT, frame)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, hand_on)
    signal.signal(signal.SIGTSTP, stop)
