"""Verdicts: whose fault the death of a confined process was."""

import os
import signal

from tasks.core.confinement.inside.reaping import KILLED
from tasks.core.interfaces.world import ExecutionTimeout, WorldFault

LAST_SECONDS = 0.25
"""Seconds that a process may take to exit after its socket has closed."""
_FAULTS_OF_OTHERS = {signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT}
"""Signals that confined code cannot send: memory ran out, or someone killed the process."""


class ProcessDied(ExecutionTimeout):
    """The agent's code ended its own process: os._exit, a crash, a broken protocol. The policy is at fault."""


def verdict_on_death(status: int | None, name: str, trusted: bool = False) -> ExecutionTimeout | WorldFault:
    """Return the error to raise for a process that hung up and ended with `status` (see `reaping.end_child`).

    `status` None means that its fork server is gone too. `name` names the process in the message. A `trusted` process
    runs no agent's code, so its death is the world's fault.
    """
    if status is None:
        return WorldFault(f"the {name} and the process that forked it are gone")
    if status == KILLED:
        return _at_fault(name, "closed its connection", trusted)
    if not os.WIFSIGNALED(status):
        return _at_fault(name, f"ended with exit code {os.waitstatus_to_exitcode(status)}", trusted)
    number = os.WTERMSIG(status)
    if number == signal.SIGXCPU:
        return ExecutionTimeout(f"the {name} used all of its CPU time")
    if number in _FAULTS_OF_OTHERS or trusted:
        return WorldFault(f"the {name} was killed from outside (signal {number}); is memory short?")
    return _at_fault(name, f"crashed (signal {number})", trusted)


def _at_fault(name: str, end: str, trusted: bool) -> ExecutionTimeout | WorldFault:
    return WorldFault(f"the {name} {end}") if trusted else ProcessDied(f"the code broke its {name}, which {end}")
