"""No process is left behind; how one's end is waited for, and whether the sandbox's or the agent's fault it is."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tasks.core.confinement.fork_server import ProcessDied, verdict_on_death
from tasks.core.confinement.inside.forking import KILLED
from tasks.core.confinement.inside.frames import MAX_DEPTH, MalformedMessage, decode_hostile
from tasks.core.interfaces.world import ExecutionTimeout, WorldFault
from tasks.core.processes.running import find_process
from tasks.core.sandbox import Repl, Sandbox, SandboxLimits

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def nothing(*_: object) -> None:
    return None


def alive(pid: int) -> bool:
    try:
        return find_process(pid).is_running
    except OSError:
        return False


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 10
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < deadline, "processes were left behind"
        time.sleep(0.01)


def test_close_ends_all_processes_and_is_idempotent() -> None:
    sandbox = Sandbox()
    repls = [sandbox.start() for _ in range(8)]
    repls[0].run("x = 1", nothing)
    repls[1].close()
    repls[1].close()
    sandbox.close()
    sandbox.close()
    wait_until_gone([repl.pid for repl in repls])
    with pytest.raises(WorldFault):
        repls[0].run("x", nothing)
    with pytest.raises(WorldFault, match="closed"):
        sandbox.start()


@linux
def test_processes_die_with_their_owner_even_when_busy() -> None:
    owner = (
        "import threading, time\n"
        "from tasks.core.sandbox import Sandbox, SandboxLimits\n"
        "sandbox = Sandbox(SandboxLimits(cpu_seconds_per_run=30))\n"
        "busy, idle = sandbox.start(), sandbox.start()\n"
        "idle.run('1', None)\n"
        "threading.Thread(target=busy.run, args=('while True: pass', None), daemon=True).start()\n"
        "print(busy.pid, idle.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", owner], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        pids = [int(word) for word in process.stdout.readline().split()]
    assert len(pids) == 2
    assert all(alive(pid) for pid in pids)
    process.kill()
    process.wait()
    wait_until_gone(pids)


def test_a_killed_process_is_the_worlds_fault(repl: Repl) -> None:
    repl.run("x = 1", nothing)
    os.kill(repl.pid, signal.SIGKILL)
    with pytest.raises(WorldFault, match="killed from outside"):
        repl.run("x", nothing)


def test_a_dead_zygote_is_replaced() -> None:
    sandbox = Sandbox()
    repl = sandbox.start()
    repl.run("x = 1", nothing)
    [zygote] = sandbox._pool.pids
    os.kill(zygote, signal.SIGKILL)
    wait_until_gone([repl.pid])
    with pytest.raises(WorldFault):
        repl.run("x", nothing)
    assert sandbox.start().run("print(1)", nothing).output == "1\n"
    sandbox.close()


def test_closing_while_code_runs_ends_the_run() -> None:
    sandbox = Sandbox(SandboxLimits(cpu_seconds_per_run=30))
    repl = sandbox.start()
    repl.run("x = 1", nothing)
    timer = threading.Timer(0.1, sandbox.close)
    timer.start()
    with pytest.raises(WorldFault):
        repl.run("while True: pass", nothing)
    timer.join()


def test_many_repls_from_many_threads(sandbox: Sandbox) -> None:
    outputs: dict[int, str] = {}

    def play(number: int) -> None:
        repl = sandbox.start(seed=number)
        for _ in range(3):
            outputs[number] = repl.run(f"print(apis.a.b({number}))", lambda app, name, args, kwargs: args[0]).output
        repl.close()

    with ThreadPoolExecutor(40) as threads:
        list(threads.map(play, range(40)))
    assert outputs == {number: f"{number}\n" for number in range(40)}


def test_zygote_imports_nothing_of_the_pipeline(repl: Repl) -> None:
    names = "{'torch', 'numpy', 'pydantic', 'tasks', 'asyncio'}"
    assert repl.run(f"import sys; print({names} & set(sys.modules))", nothing).output == "set()\n"


def test_depth_counts_brackets_outside_strings_only() -> None:
    brackets = b'{"a": "' + b"[" * 200 + b'\\"["}'
    assert decode_hostile(brackets)["a"].startswith("[[[")
    flat = b'{"a": [' + b",".join([b"[]"] * 200) + b"]}"
    assert len(decode_hostile(flat)["a"]) == 200
    with pytest.raises(MalformedMessage, match="deep"):
        decode_hostile(b'{"a": ' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}")


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
