"""JVMs that die in mid-episode: a fault of the world, for their episodes alone, and the pool goes on."""

import contextlib
import os
import signal
from pathlib import Path

import psutil
import pytest

from tasks.core.interfaces.world import WorldFault
from tasks.core.worlds.scienceworld import pool as pool_module
from tasks.core.worlds.scienceworld.interpreter import python_executable
from tasks.core.worlds.scienceworld.pool import SimulatorPool
from tests.core.worlds.scienceworld.conftest import FOLDER, PLANT, Open, new_pool

pytestmark = pytest.mark.scienceworld


@pytest.mark.parametrize("killed", ["jvm_pid", "pid"])
def test_a_kill_is_a_fault_of_the_world_for_its_episodes_alone(
    pool: SimulatorPool, open_session: Open, killed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHON_CPU_COUNT", "2")
    sessions = [open_session(*PLANT) for _ in range(3)]
    victim = sessions[0].process
    assert len({session.process for session in sessions}) == 2
    jvm = psutil.Process(victim.jvm_pid)
    os.kill(getattr(victim, killed), signal.SIGKILL)
    for session in sessions:
        if session.process is victim:
            with pytest.raises(WorldFault, match="JVM"):
                session.step("wait1")
        else:
            assert session.step("wait1")["moves"] == 2
    jvm.wait(10)
    assert open_session(*PLANT).step("wait1")["moves"] == 2
    assert victim not in pool.processes


def test_a_jvm_that_hangs_is_ended_and_said_to_have_given_no_answer(open_session: Open) -> None:
    session = open_session(*PLANT)
    process, jvm = session.process, psutil.Process(session.process.jvm_pid)
    jvm.suspend()
    try:
        with pytest.raises(WorldFault, match=r"^ScienceWorld's JVM did not answer in 0.5 s$"):
            process.ask({"types": True}, seconds=0.5)
        jvm.wait(10)
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            jvm.kill()
    with pytest.raises(WorldFault, match="JVM exited"):
        session.step("wait1")
    assert open_session(*PLANT).step("wait1")["moves"] == 2


def test_a_jvm_that_hangs_while_it_starts_is_not_left_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java, hanging = tmp_path / "java", ["sleep", f"600.{os.getpid()}"]
    java.write_text(f"#!/bin/sh\nexec {' '.join(hanging)}\n", encoding="utf-8")
    java.chmod(0o755)
    monkeypatch.setattr(pool_module, "_START_SECONDS", 5.0)
    own = SimulatorPool(python_executable(FOLDER), java)
    with pytest.raises(WorldFault, match=r"^ScienceWorld's JVM did not answer in 5 s$"):
        own.start()
    own.close()
    left = [process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"] == hanging]
    assert psutil.wait_procs(left, timeout=10)[1] == []


def test_a_jvm_has_no_network(open_session: Open) -> None:
    process = open_session(*PLANT).process
    if not process.alone:
        pytest.skip("this system keeps network namespaces from this user")
    proc = Path(f"/proc/{process.jvm_pid}/net")
    assert [line.split(":")[0].strip() for line in (proc / "dev").read_text().splitlines()[2:]] == ["lo"]
    assert len((proc / "route").read_text().splitlines()) <= 1


def test_closing_ends_every_process() -> None:
    own = new_pool()
    process = own.take()
    alive = [psutil.Process(pid) for pid in (process.pid, process.jvm_pid) if pid is not None]
    own.close()
    own.close()
    assert len(alive) == 2 and not any(one.is_running() for one in alive)
    with pytest.raises(WorldFault, match="closed"):
        own.take()
