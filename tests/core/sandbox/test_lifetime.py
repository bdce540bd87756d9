"""No process is left behind, and faults of the sandbox are told apart from faults of the agent."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tasks.core.confinement.inside.frames import MAX_DEPTH, MalformedMessage, decode_hostile
from tasks.core.interfaces.world import WorldFault
from tasks.core.sandbox import Repl, Sandbox, SandboxLimits

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def nothing(*_: object) -> None:
    return None


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


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

    threads = [threading.Thread(target=play, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
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
