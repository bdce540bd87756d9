"""Recited τ²-bench episodes on one core, verdicts included.

python tests/benchmarks/tau2_episodes.py

All processes, this one too, share one core. CPU seconds are theirs together, so that a busy machine matters little.
"""

import os
import time
from pathlib import Path

import psutil
from result_file import write_result

from tasks.core.worlds.tau2.interpreter import python_executable
from tasks.core.worlds.tau2.pool import Tau2Pool
from tasks.core.worlds.tau2.settings import Tau2Config
from tasks.core.worlds.tau2.tasks import parted
from tasks.core.worlds.tau2.world import Tau2World

SPLITS = ("train", "test_normal")


def cpu_seconds() -> float:
    """CPU time of this process and all below it, ended ones included."""
    own = psutil.Process()
    return sum(sum(process.cpu_times()[:4]) for process in (own, *own.children(recursive=True)))


def measure() -> dict[str, float]:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    begin = time.perf_counter()
    config, pool = Tau2Config(prompt="ticket"), Tau2Pool(python_executable())
    world = Tau2World(parted(*pool.tasks(), config.train, 2502), pool, config)
    started = time.perf_counter() - begin
    turns = {task.task_id: world.demonstration(task.task_id) for split in SPLITS for task in world.tasks(split)}  # type: ignore[arg-type]
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
    write_result("tau2_episodes", measure(), packages=())
