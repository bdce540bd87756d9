"""One of our servers: reuse the pipeline's running server or start one, end it, and wait for it.

The supervisor writes its address, key and process to `.loopline/vllm/<host>-<pipeline's pid>-<index>.json`. Machines
may share the folder.
"""

import json
import os
import re
import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
from tqdm import tqdm

from tasks.core.engines.vllm.client import EngineUnavailable
from tasks.core.engines.vllm.launching import Address, LaunchSpec
from tasks.core.processes.addresses import free_port, is_healthy
from tasks.core.processes.running import Process, exists, pipeline_process
from tasks.core.records.files import ArtifactError, read_json

STATE_FOLDER = Path(".loopline") / "vllm"
_POLL_S = 0.25
_END_S = 30.0
_SHOWN_LINES = 12
_CODE = Path(__file__).parents[4]
_HOST = socket.gethostname()


class OwnServer:
    """Server number `index` of the pipeline to which this process belongs."""

    def __init__(self, index: int, folder: Path = STATE_FOLDER) -> None:
        self._folder, self.index = folder.resolve(), index
        self._owner = pipeline_process()
        stem = f"{_HOST}-{self._owner.pid}-{index}"
        self._state, self.log = self._folder / f"{stem}.json", self._folder / f"{stem}.log"
        self._found: LaunchSpec | None = None
        """The specification of a running server that `start` reused."""

    @property
    def is_ours(self) -> bool:
        """Whether this process is the pipeline, so that nobody can use the server after it."""
        return self._owner.pid == os.getpid()

    def start(self, spec: LaunchSpec) -> None:
        """Start a server with `spec`, unless it is already running; end a server with another specification first."""
        state = self._read()
        self._found = spec if state is not None and state["spec"] == spec.digest else None
        if self._found is None:
            self.stop()
            self._launch(spec)

    def stop(self) -> None:
        """End the server, if there is one, and wait until its processes are gone."""
        state = self._read()
        if state is None:
            return
        supervisor = psutil.Process(state["supervisor"])
        try:
            supervisor.terminate()
            supervisor.wait(_END_S)
        except psutil.TimeoutExpired:
            supervisor.kill()  # the kernel then ends the server
        except psutil.NoSuchProcess:
            pass
        self._state.unlink(missing_ok=True)

    def _read(self) -> dict[str, Any] | None:
        """Return the state of the running server; None if there is none."""
        if not self._state.exists():
            return None
        try:
            state = read_json(self._state)
        except ArtifactError:
            return None
        if not Process(state["supervisor"], state["supervisor_started"]).is_running:
            self._state.unlink(missing_ok=True)
            return None
        return state

    def _launch(self, spec: LaunchSpec) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        _sweep(self._folder)
        port, key = free_port(), secrets.token_hex(16)
        launch = {
            "about": {"spec": spec.digest, "url": f"http://127.0.0.1:{port}", "key": key},
            "state": str(self._state),
            "log": str(self.log),
            "command": spec.command(port),
            "variables": spec.variables(self._folder / "cache") | {"VLLM_API_KEY": key},
            "owner": self._owner.pid,
            "owner_started": self._owner.started,
        }
        with self.log.open("ab") as log:
            supervisor = subprocess.Popen(
                [sys.executable, "-m", "tasks.core.engines.vllm.supervisor"],
                cwd=_CODE,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        assert supervisor.stdin is not None
        with supervisor.stdin as stdin:
            stdin.write(json.dumps(launch).encode())
        self._await_state(supervisor)

    def _await_state(self, supervisor: "subprocess.Popen[bytes]") -> None:
        while not self._state.exists():
            if supervisor.poll() is not None:
                raise EngineUnavailable(f"vLLM server {self.index} could not be started.\n{self._last_words()}")
            time.sleep(_POLL_S)

    def await_health(self, timeout_s: float) -> Address:
        """Return the server's address once it is healthy. Raises EngineUnavailable with the last lines of its log."""
        deadline = time.monotonic() + timeout_s
        with tqdm(desc=f"vLLM server {self.index}", unit="s", total=None, leave=False, disable=None) as bar:
            while time.monotonic() < deadline:
                state = self._read()
                if state is None and self._found is not None:
                    # The reused server was already dying, and its supervisor had not noticed yet.
                    self._launch(self._found)
                    self._found = None
                    continue
                if state is None:
                    raise EngineUnavailable(f"vLLM server {self.index} exited while it started.\n{self._last_words()}")
                if is_healthy(f"{state['url']}/health"):
                    return Address(state["url"], state["key"])
                bar.set_postfix_str(self._last_words(1)[-80:], refresh=False)
                bar.n = round(timeout_s - (deadline - time.monotonic()))
                bar.refresh()
                time.sleep(_POLL_S)
        self.stop()
        raise EngineUnavailable(
            f"vLLM server {self.index} was not ready after {timeout_s:.0f} s.\n{self._last_words()}"
        )

    def _last_words(self, lines: int = _SHOWN_LINES) -> str:
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        return "\n".join([*text.strip().splitlines()[-lines:], *([f"({self.log})"] if lines > 1 else [])])


def _sweep(folder: Path) -> None:
    """Remove files left by this machine's killed supervisors, and the logs of pipelines that are gone."""
    for file in folder.iterdir():
        ours = re.fullmatch(rf"{re.escape(_HOST)}-(\d+)-\d+\..*", file.name)  # another's name may begin with this one's
        if ours and not exists(int(ours[1])):
            file.unlink(missing_ok=True)
