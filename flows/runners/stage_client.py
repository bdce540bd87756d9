"""The client of the stage server: runs a stage of `dvc repro` there, and starts the server for the first stage.

Imports the standard library only, which takes 0.05 s. The server is server.py.
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
from typing import TypedDict

from tasks.core.processes.running import Process, dvc_above

SOCKETS = Path(".loopline/stage_servers")
"""A socket for each `dvc repro` in this checkout. Relative to the checkout: a socket's path has at most 107 bytes."""
LOG = Path(".loopline/stage_server.log")
SWITCH = "LOOPLINE_WARM"
SERVER = "flows.runners.stage_server"
KILLED = 128 + signal.SIGKILL


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
    """Return the `dvc repro` that this process is a stage of; None where LOOPLINE_WARM is 0, and off Linux."""
    return None if os.environ.get(SWITCH) == "0" or sys.platform != "linux" else dvc_above()


def socket_of(repro: Process) -> Path:
    """Return the place at which the stage server of this `dvc repro` listens."""
    return SOCKETS / f"{repro.pid}-{repro.started}"


def _start_server(repro: Process) -> None:
    """Start a server for `repro`; connections wait for it from now on, or break off if it does not come up."""
    SOCKETS.mkdir(mode=0o700, parents=True, exist_ok=True)
    socket_of(repro).unlink(missing_ok=True)
    # The server is the pipeline's process for what it starts: not itself a stage of DVC's.
    variables = {name: value for name, value in os.environ.items() if name != "DVC_STAGE"}
    with socket.socket(socket.AF_UNIX) as listener, LOG.open("wb") as log:
        listener.bind(str(socket_of(repro)))
        listener.listen()
        subprocess.Popen(
            [sys.executable, "-m", SERVER, str(listener.fileno()), str(repro.pid), str(repro.started)],
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
            connection.connect(str(socket_of(repro)))
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
            last = _last_of_log()
            why = "was killed; is memory short?" if last is None else f"ended: {last}"
            print(f"flows.stage: the stage server {why} (its log: {LOG})", file=sys.stderr)
            return KILLED if last is None else 1


def _last_of_log() -> str | None:
    """Return the last line of the server's traceback; None where it left none, as after SIGKILL."""
    try:
        lines = [line for line in LOG.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    except OSError:
        return None
    return lines[-1] if any(line.startswith("Traceback ") for line in lines) else None


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
