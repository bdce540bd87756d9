"""Ends of confined processes: how they are waited for, and whose fault they are."""

import os
import signal
import subprocess
import sys

import pytest

from tasks.core.confinement.fork_server import ProcessDied, verdict_on_death
from tasks.core.confinement.inside.forking import KILLED
from tasks.core.interfaces.world import ExecutionTimeout, WorldFault

EXIT_3 = 3 << 8
IN_FROZEN_TIME = """
import os, select
from tasks.core.confinement.inside.forking import KILLED, end_child
from tasks.core.sandbox.inside.zygote import FrozenSystem

FrozenSystem().install()
quick = os.fork()
if not quick:
    select.select([], [], [], 0.3)
    os._exit(3)
print(end_child(quick, 30.0)[0])
endless = os.fork()
if not endless:
    while True:
        select.select([], [], [], 1.0)
print(end_child(endless, 0.2)[0] == KILLED)
"""


@pytest.mark.parametrize(
    ("status", "trusted", "error", "text"),
    [
        (None, False, WorldFault, "the shell and the process that forked it are gone"),
        (KILLED, False, ProcessDied, "the code broke its shell, which closed its connection"),
        (KILLED, True, WorldFault, "the shell closed its connection"),
        (EXIT_3, False, ProcessDied, "the code broke its shell, which ended with exit code 3"),
        (EXIT_3, True, WorldFault, "the shell ended with exit code 3"),
        (int(signal.SIGSEGV), False, ProcessDied, "the code broke its shell, which crashed (signal 11)"),
        (int(signal.SIGSEGV), True, WorldFault, "the shell was killed from outside (signal 11)"),
        (int(signal.SIGKILL), False, WorldFault, "the shell was killed from outside (signal 9); is memory short?"),
        (int(signal.SIGXCPU), False, ExecutionTimeout, "the shell used all of its CPU time"),
    ],
)
def test_a_death_has_one_who_is_at_fault(status: int | None, trusted: bool, error: type[Exception], text: str) -> None:
    found = verdict_on_death(status, "shell", trusted)
    assert type(found) is error
    assert str(found).startswith(text)


@pytest.mark.skipif(sys.platform != "linux", reason="the statuses are Linux's")
def test_patience_is_real_time_where_the_clock_stands_still() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_FROZEN_TIME], capture_output=True, text=True, timeout=60, check=True, env=os.environ
    )
    assert done.stdout.split() == [str(EXIT_3), "True"]
