"""Recited BFCL episodes on one core, verdicts included.

python tests/benchmarks/bfcl_episodes.py

All processes, this one too, share one core. CPU seconds are theirs together, so that a busy machine matters little.
"""

import os
import time
from pathlib import Path

import psutil
from result_file import write_result

from tasks.core.worlds.bfcl.interpreter import python_executable
from tasks.core.worlds.bfcl.pool import BfclPool
from tasks.core.worlds.bfcl.world import BfclWorld, parted

EVERY = 2
"""Stride: one in so many of the tasks of all splits is played."""


def cpu_seconds() -> float:
    """CPU time of this process and all below it, ended ones included."""
    own = psutil.Process()
    return sum(sum(process.cpu_times()[:4]) for process in (own, *own.children(recursive=True)))


def measure() -> dict[str, float]:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    begin = time.perf_counter()
    pool = BfclPool(python_executable())
    listed = pool.tasks()
    started = time.perf_counter() - begin
    world = BfclWorld(parted(listed, 2502), pool)
    turns = {one["id"]: world.demonstration(one["id"]) for one in listed[::EVERY]}
    begin, cpu, solved = time.perf_counter(), cpu_seconds(), 0
    for task_id, said in turns.items():
        episode = world.open(task_id, 0)
        for text in said:
            episode.step(text)
        solved += episode.evaluate().success
        episode.close()
    wall, cpu = time.perf_counter() - begin, cpu_seconds() - cpu
    memory = {child.pid: child.memory_info().rss for child in psutil.Process().children(recursive=True)}
    world.close()
    return {
        "episodes": len(turns),
        "solved": solved,
        "turns": sum(map(len, turns.values())),
        "start_s": round(started, 2),
        "episodes_per_s_and_core": round(len(turns) / cpu, 1),
        "episodes_per_s": round(len(turns) / wall, 1),
        "largest_process_mb": round(max(memory.values()) / 2**20, 1),
    }


if __name__ == "__main__":
    assert Path("pyproject.toml").exists(), "run it in the repository's root"
    write_result("bfcl_episodes", measure(), packages=())
