"""The servers of one engine: our own, which are found or started and ended, or external ones, which are waited for.

The supervisor writes its address, key and process to `.loopline/vllm/<host>-<pipeline's pid>-<index>.json`. Machines
may share the folder.
"""

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
from tqdm import tqdm

from tasks.core.engines.vllm.client import EngineUnavailable, ServerLost
from tasks.core.engines.vllm.launching import Address, LaunchSpec
from tasks.core.policies.checkpoint_files import FULL_CONFIG, FULL_WEIGHTS, policy_digest
from tasks.core.processes.addresses import free_port, is_healthy
from tasks.core.processes.running import Process, exists, pipeline_process
from tasks.core.records.files import ArtifactError, read_json

STATE_FOLDER = Path(".loopline") / "vllm"
_POLL_S = 0.25
_END_S = 30.0
_SHOWN_LINES = 12
_CODE = Path(__file__).parents[4]
_HOST = socket.gethostname()
KEY_VARIABLE = "VLLM_API_KEY"
"""Name of the variable with the external servers' bearer token."""
_LINKED = 8
"""Folders of links that stay: a checkout's pipelines, each with a server that may be started again, are fewer."""


class OwnServer:
    """Server number `index` of the pipeline to which this process belongs."""

    def __init__(self, index: int, folder: Path = STATE_FOLDER) -> None:
        self._folder, self.index = folder.resolve(), index
        self._owner = pipeline_process()
        stem = f"{_HOST}-{self._owner.pid}-{index}"
        self._state, self.log = self._folder / f"{stem}.json", self._folder / f"{stem}.log"
        self._found: LaunchSpec | None = None
        """The specification of a running server that `start` reused."""

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


class OwnServers:
    """Servers that we start with equal settings, each on its own GPUs."""

    found = False
    """Whether the servers are external: what they serve must be checked, and they cannot be stopped."""

    def __init__(self, specs: Sequence[LaunchSpec], start_timeout_s: float) -> None:
        self._specs, self._timeout_s = list(specs), start_timeout_s
        self._present = self._specs
        self._servers = [OwnServer(index) for index in range(len(specs))]
        self._end_with_us = pipeline_process().pid == os.getpid()  # nobody can use them after this process

    def start(self, checkpoint: Path | None) -> list[Address]:
        """Start all servers that are not yet running, at once. Raises EngineUnavailable."""
        self._present = self._specs
        if checkpoint is not None:
            weights = policy_digest(checkpoint)
            folder = _weights_alone(checkpoint, weights)
            self._present = [replace(spec, model=folder, weights=weights) for spec in self._specs]
        for server, spec in zip(self._servers, self._present, strict=True):
            server.start(spec)
        return [server.await_health(self._timeout_s) for server in self._servers]

    def restart(self, index: int) -> Address:
        server = self._servers[index]
        server.stop()
        server.start(self._present[index])
        return server.await_health(self._timeout_s)

    def stop(self) -> None:
        for server in self._servers:
            server.stop()

    def close(self) -> None:
        if self._end_with_us:
            self.stop()


class ExternalServers:
    """External servers at URLs. Their machines must have adapters at the same paths as this machine."""

    found = True

    def __init__(self, urls: Sequence[str], patience_s: float) -> None:
        key = os.environ.get(KEY_VARIABLE, "")
        self._addresses = [Address(url.rstrip("/"), key) for url in urls]
        self._patience_s = patience_s

    def start(self, checkpoint: Path | None) -> list[Address]:
        """Check the servers.

        Raises ServerLost naming a URL without a server, ValueError for a fully trained checkpoint.
        """
        if checkpoint is not None:
            raise ValueError(
                f"{checkpoint}: a fully trained policy, and {', '.join(address.url for address in self._addresses)} "
                "(engine.vllm.urls) can be given adapters alone; unset urls, so that the pipeline starts servers"
            )
        for address in self._addresses:
            if not is_healthy(f"{address.url}/health"):
                raise ServerLost(f"engine.vllm.urls: no healthy vLLM server at {address.url}")
        return self._addresses

    def restart(self, index: int) -> Address:
        """Wait until whoever runs the server has restarted it."""
        address, deadline = self._addresses[index], time.monotonic() + self._patience_s
        while not is_healthy(f"{address.url}/health"):
            if time.monotonic() > deadline:
                raise ServerLost(f"engine.vllm.urls: the server at {address.url} is gone")
            time.sleep(_POLL_S)
        return address

    def stop(self) -> None:
        """Do nothing: the servers are not ours."""

    def close(self) -> None:
        """Do nothing: the servers are not ours."""


def _weights_alone(checkpoint: Path, digest: str) -> Path:
    """Return a folder of links to a checkpoint's config and weights.

    vLLM loads every safetensors file that it finds in a folder, and a learner's checkpoint has the optimizer's, too.
    Removes the folders of checkpoints that were served long ago.
    """
    folder = (STATE_FOLDER / "served" / digest[:16]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for name in (FULL_CONFIG, FULL_WEIGHTS):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to((checkpoint / name).resolve())
    with suppress(FileNotFoundError):  # another pipeline of the checkout is removing some
        for old in sorted(folder.parent.iterdir(), key=lambda path: path.stat().st_mtime_ns)[:-_LINKED]:
            shutil.rmtree(old, ignore_errors=True)
    return folder
