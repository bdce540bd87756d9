"""All servers of one engine: our own, which can be restarted and ended, or external servers, which cannot."""

import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from tasks.core.engines.vllm.client import ServerLost
from tasks.core.engines.vllm.launching import Address, LaunchSpec
from tasks.core.engines.vllm.own_server import STATE_FOLDER, OwnServer
from tasks.core.policies.checkpoint_files import FULL_CONFIG, FULL_WEIGHTS, policy_digest
from tasks.core.processes.addresses import is_healthy

KEY_VARIABLE = "VLLM_API_KEY"
"""Name of the variable with the external servers' bearer token."""
_POLL_S = 0.5
_LINKED = 8
"""Folders of links that stay: a checkout's pipelines, each with a server that may be started again, are fewer."""


class ServerProvider(Protocol):
    """The servers of an engine, wherever they run."""

    found: bool
    """Whether the servers are external: what they serve must be checked, and they cannot be stopped."""

    def start(self, checkpoint: Path | None) -> list[Address]:
        """Return addresses of healthy servers of the base model, or of the fully trained `checkpoint`."""
        ...

    def restart(self, index: int) -> Address:
        """Return the address of server `index` after it died. Raises EngineUnavailable."""
        ...

    def stop(self) -> None:
        """End our servers."""
        ...

    def close(self) -> None:
        """End the servers that nobody can use after this process."""
        ...


class OwnServers:
    """Servers that we start with equal settings, each on its own GPUs."""

    found = False

    def __init__(self, specs: Sequence[LaunchSpec], start_timeout_s: float) -> None:
        self._specs, self._timeout_s = list(specs), start_timeout_s
        self._present = self._specs
        self._servers = [OwnServer(index) for index in range(len(specs))]

    def start(self, checkpoint: Path | None) -> list[Address]:
        """Start all servers that are not yet running, at once. Raises EngineUnavailable."""
        self._present = [_serving(spec, checkpoint) for spec in self._specs]
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
        for server in self._servers:
            if server.is_ours:
                server.stop()


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


def _serving(spec: LaunchSpec, checkpoint: Path | None) -> LaunchSpec:
    if checkpoint is None:
        return spec
    weights = policy_digest(checkpoint)
    return replace(spec, model=_weights_alone(checkpoint, weights), weights=weights)


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
