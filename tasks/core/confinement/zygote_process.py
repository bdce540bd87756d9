"""Starting and ending a zygote: a small process that forks other processes (see `inside.forking`)."""

import contextlib
import json
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.core.confinement.fork_server import ForkServer
from tasks.core.interfaces.world import WorldFault

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


class ZygoteProcess:
    """A running zygote process."""

    def __init__(
        self,
        subject: str,
        python: Sequence[str],
        module: str,
        settings: Mapping[str, Any],
        environment: Mapping[str, str],
        keep_errors: bool = False,
    ) -> None:
        """Run `main(control descriptor, settings)` of `module`, from an `inside` package, in a new interpreter.

        `subject` names the process in errors; `python` is the command with its flags. `keep_errors` keeps its standard
        error for `said` instead of passing it to ours.
        """
        ours, theirs = socket.socketpair()
        self.forks = ForkServer(ours, subject)
        with theirs:
            self._process = subprocess.Popen(
                [*python, "-c", _start(module, theirs.fileno(), settings)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE if keep_errors else None,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C in the terminal goes to the pipeline, which then closes the zygote
            )

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def pids(self) -> list[int]:
        """Process ids that live as long as the zygote."""
        return [self.pid]

    @property
    def alive(self) -> bool:
        """Whether the zygote can still fork."""
        return self._process.poll() is None and not self.forks.broken

    def ready(self, seconds: float) -> None:
        """Wait until the zygote can fork. Raises WorldFault after ending it."""
        try:
            self.forks.started(seconds)
        except WorldFault:
            self.close()
            raise

    def said(self) -> str:
        """Return the last characters of its standard error if kept; call once, after its end."""
        if self._process.stderr is not None:
            with contextlib.suppress(OSError, ValueError), self._process.stderr as stream:
                return stream.read()[-_SAID_CHARS:].decode("utf-8", "replace").strip()
        return ""

    def close(self) -> None:
        """End the zygote and every process that it forked. Idempotent."""
        self.forks.close()
        try:
            self._process.wait(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


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
