"""Recited τ²-bench episodes on one core, verdicts included.

python tests/benchmarks/tau2_episodes.py

All processes, this one too, share one core. CPU seconds are theirs together, so that a busy machine matters little.
"""

import time
from pathlib import Path

from recited_episodes import recited, stay_on_one_core
from result_file import write_result

from tasks.core.worlds.tau2.interpreter import python_executable
from tasks.core.worlds.tau2.pool import Tau2Pool
from tasks.core.worlds.tau2.settings import Tau2Config
from tasks.core.worlds.tau2.tasks import parted
from tasks.core.worlds.tau2.world import Tau2World

SPLITS = ("train", "test_normal")


def measure() -> dict[str, float]:
    stay_on_one_core()
    begin = time.perf_counter()
    config, pool = Tau2Config(prompt="ticket"), Tau2Pool(python_executable())
    world = Tau2World(parted(*pool.tasks(), config.train, 2502), pool, config)
    started = time.perf_counter() - begin
    turns = {task.task_id: world.demonstration(task.task_id) for split in SPLITS for task in world.tasks(split)}  # type: ignore[arg-type]
    return recited(world, turns, started)


if __name__ == "__main__":
    assert Path("pyproject.toml").exists(), "run it in the repository's root"
    write_result("tau2_episodes", measure(), packages=())
