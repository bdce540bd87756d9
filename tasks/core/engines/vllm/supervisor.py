"""The process that one of our servers lives and dies with: `python -m tasks.core.engines.vllm.supervisor`.

A server must outlive the stage that started it (loading a model takes minutes) but not the pipeline. So each server is
the child of a supervisor in its own session, which ends the server when the pipeline's process is gone, however it
ended. vLLM's worker processes survive the death of their server, so the supervisor kills the whole process group. If
the supervisor itself is killed, the kernel signals the server to end. The launch arrives as JSON on stdin.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from tasks.core.processes.running import Process, find_process, parent_death_signal
from tasks.core.records.files import write_json

_POLL_S = 0.2
_GRACE_S = 10.0


def main() -> int:
    """Launch the server, write its state file, and wait for the server's end, the owner's end, or a signal."""
    launch: dict[str, Any] = json.load(sys.stdin)
    state = Path(launch["state"])
    signal.signal(signal.SIGTERM, _exit)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.umask(0o077)  # the state file holds the server's key
    with Path(launch["log"]).open("ab") as log:
        server = subprocess.Popen(
            launch["command"],
            env=launch["variables"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            process_group=0,
            preexec_fn=parent_death_signal(),
        )
    try:
        started = find_process(os.getpid()).started
        write_json(state, {**launch["about"], "supervisor": os.getpid(), "supervisor_started": started})
        owner = Process(launch["owner"], launch["owner_started"])
        while server.poll() is None and owner.is_running:
            time.sleep(_POLL_S)
        gone = f"process {owner.pid} is gone" if server.poll() is None else f"the server ended ({server.poll()})"
        print(f"supervisor: {gone}", file=sys.stderr)
    finally:
        end_group(server)
        state.unlink(missing_ok=True)
    return 0


def end_group(server: "subprocess.Popen[bytes]") -> None:
    """Ask the server's process group to end, then kill what is left of it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(_GRACE_S)


def _exit(number: int, frame: FrameType | None) -> None:
    print(f"supervisor: terminated by {signal.Signals(number).name}", file=sys.stderr)
    sys.exit(0)


if __name__ == "__main__":
    sys.exit(main())
