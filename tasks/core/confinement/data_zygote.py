"""A zygote in two steps: it forks what runs agents' code, and an engine that loads data and forks what needs them."""

import socket
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.core.confinement.fork_server import ForkServer
from tasks.core.confinement.zygote_process import ZygoteProcess
from tasks.core.interfaces.world import WorldFault


class DataZygote(ZygoteProcess):
    """One live zygote and its engine, the process with the data: agents' code must not inherit them."""

    def __init__(
        self,
        subject: str,
        python: Sequence[str],
        module: str,
        settings: Mapping[str, Any],
        environment: Mapping[str, str],
    ) -> None:
        """Start it, as `ZygoteProcess` does; `ready` waits for it."""
        super().__init__(f"{subject}'s zygote", python, module, settings, environment, keep_errors=True)
        ours, self._theirs = socket.socketpair()
        self.engine = ForkServer(ours, f"{subject}'s engine")
        self.engine_pid: int | None = None
        """Known once the zygote is ready."""
        self.greeting: dict[str, Any] = {}
        """The engine's message when it was ready."""

    @property
    def pids(self) -> list[int]:
        """Process ids of the zygote and its engine."""
        return [self.pid] if self.engine_pid is None else [self.pid, self.engine_pid]

    @property
    def alive(self) -> bool:
        """Whether it can be asked for more, and its engine too."""
        return super().alive and not self.engine.broken

    def ready(self, seconds: float, frame: bytes = b"") -> None:
        """Wait until it can fork, and its engine too, which is sent `frame`.

        Raises WorldFault with what it said on its standard error.
        """
        try:
            with self._theirs:
                self.forks.started(seconds)
                self.engine_pid = self.forks.fork("engine", [self._theirs.fileno()])
            self.greeting = self.engine.started(seconds, frame)
        except WorldFault as fault:
            self.close()
            said = self.said()
            raise WorldFault(f"{fault}; it said: {said}" if said else str(fault)) from fault

    def close(self) -> None:
        """End it and every process that it or its engine forked. Idempotent."""
        self._theirs.close()
        self.engine.close()
        super().close()
