"""A zygote: a small process that forks other processes (see `inside.forking`), with or without an engine of its own."""

import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from tasks.core.confinement.fork_server import ForkServer
from tasks.core.interfaces.world import WorldFault

Confinement = Literal["auto", "seccomp", "audit"]
"""See `inside.jail`."""

_ROOT = Path(__file__).parents[3]
_KIT = "tasks.core.confinement"
# The packages above an `inside` are empty stand-ins: no module of the pipeline is imported, and the pipeline's
# site-packages are hidden. Modules cannot register functions to run at a fork (locks of logging and threading, a new
# seed of `random`): a zygote has one thread, and these calls take a third of a fork's time. Garbage collection is off
# until the zygote is ready (`inside.forking`): nothing that it loads is garbage.
_START = """
import gc, json, os, sys, types
gc.disable()
os.register_at_fork = lambda **_: None
for name, folder in json.loads({packages!r}):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [folder]
from {module} import main
main({control}, json.loads({settings!r}))
"""
_END_SECONDS = 10.0
_SAID_CHARS = 2000


class Zygote:
    """A running zygote. With an engine, the process that holds the data: agents' code must not inherit the data."""

    def __init__(
        self,
        subject: str,
        python: Sequence[str],
        module: str,
        settings: Mapping[str, Any],
        environment: Mapping[str, str],
    ) -> None:
        """Run `main(control descriptor, settings)` of `module`, from an `inside` package, in a new interpreter.

        `subject` names whose process it is in errors; `python` is the command with its flags. `ready` waits for it.
        """
        ours, theirs = socket.socketpair()
        self._subject, self.forks = subject, ForkServer(ours, f"{subject}'s zygote")
        self._engine: ForkServer | None = None
        self.greeting: dict[str, Any] = {}
        """The engine's ready message."""
        with theirs:
            self._process = subprocess.Popen(
                [*python, "-c", _start(module, theirs.fileno(), settings)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C in the terminal goes to the pipeline, which then closes the zygote
            )
        self.pids = [self._process.pid]
        """Process ids of the zygote and its engine."""

    @property
    def engine(self) -> ForkServer:
        """The process that holds the data and forks what needs it."""
        assert self._engine is not None, "it is started by `ready`"
        return self._engine

    @property
    def alive(self) -> bool:
        """Whether the zygote and its engine can still fork."""
        engine = self._engine
        return self._process.poll() is None and not self.forks.broken and (engine is None or not engine.broken)

    def ready(self, seconds: float, frame: bytes | None = None) -> None:
        """Wait until it can fork; `frame` starts its engine and is sent to it, None: there is no engine.

        Raises WorldFault with its standard error, after ending it.
        """
        try:
            self.forks.started(seconds)
            if frame is not None:
                self._start_engine(seconds, frame)
        except WorldFault as fault:
            self._end()
            errors = self._said()
            raise WorldFault(f"{fault}; its standard error: {errors}" if errors else str(fault)) from fault

    def close(self) -> None:
        """End the zygote, its engine and every process that they forked. Idempotent."""
        self._end()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def _end(self) -> None:
        if self._engine is not None:
            self._engine.close()
        self.forks.close()
        try:
            self._process.wait(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _start_engine(self, seconds: float, frame: bytes) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._engine = ForkServer(ours, f"{self._subject}'s engine")
            self.pids.append(self.forks.fork("engine", [theirs.fileno()]))
        self.greeting = self._engine.started(seconds, frame)

    def _said(self) -> str:
        """Return the last characters of its standard error; call once, after its end."""
        assert self._process.stderr is not None
        with contextlib.suppress(OSError, ValueError), self._process.stderr as stream:
            return stream.read()[-_SAID_CHARS:].decode("utf-8", "replace").strip()
        return ""


def kept_variables(*names: str) -> dict[str, str]:
    """Return the environment of a package's processes: few of our variables, since agents' code may read them."""
    ours = {name: os.environ[name] for name in ("LANG", "LD_LIBRARY_PATH", "TMPDIR", *names) if name in os.environ}
    return {**ours, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}


def _start(module: str, control: int, settings: Mapping[str, Any]) -> str:
    names = {name for inside in (module, f"{_KIT}.inside.") for name in _above(inside.partition(".inside.")[0])}
    packages = [(name, str(_ROOT.joinpath(*name.split(".")))) for name in sorted(names)]
    return _START.format(
        packages=json.dumps(packages), module=module, control=control, settings=json.dumps(dict(settings))
    )


def _above(package: str) -> list[str]:
    """Return the package and all its parent packages."""
    parts = package.split(".")
    return [".".join(parts[: depth + 1]) for depth in range(len(parts))]
