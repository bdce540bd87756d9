"""A two-step zygote: it forks processes for agents' code, and an engine that loads data and forks what needs it."""

import socket
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.core.confinement.fork_server import ForkServer
from tasks.core.confinement.zygote_process import ZygoteProcess
from tasks.core.interfaces.world import WorldFault


class DataZygote(ZygoteProcess):
    """A running zygote with its engine, the process that holds the data. Agents' code must not inherit the data."""

    def __init__(
        self,
        subject: str,
        python: Sequence[str],
        module: str,
        settings: Mapping[str, Any],
        environment: Mapping[str, str],
    ) -> None:
        """Start the zygote, as `ZygoteProcess` does; `ready` waits for it."""
        super().__init__(f"{subject}'s zygote", python, module, settings, environment, keep_errors=True)
        ours, self._theirs = socket.socketpair()
        self.engine = ForkServer(ours, f"{subject}'s engine")
        self.engine_pid: int | None = None
        """Set once the zygote is ready."""
        self.greeting: dict[str, Any] = {}
        """The engine's ready message."""

    @property
    def pids(self) -> list[int]:
        """Process ids of the zygote and its engine."""
        return [self.pid] if self.engine_pid is None else [self.pid, self.engine_pid]

    @property
    def alive(self) -> bool:
        """Whether the zygote and its engine can still fork."""
        return super().alive and not self.engine.broken

    def ready(self, seconds: float, frame: bytes = b"") -> None:
        """Wait until the zygote and its engine can fork; send `frame` to the engine.

        Raises WorldFault with the zygote's standard error.
        """
        try:
            with self._theirs:
                self.forks.started(seconds)
                self.engine_pid = self.forks.fork("engine", [self._theirs.fileno()])
            self.greeting = self.engine.started(seconds, frame)
        except WorldFault as fault:
            self.close()
            errors = self.said()
            raise WorldFault(f"{fault}; its standard error: {errors}" if errors else str(fault)) from fault

    def close(self) -> None:
        """End the zygote, its engine and every process that they forked. Idempotent."""
        self._theirs.close()
        self.engine.close()
        super().close()
