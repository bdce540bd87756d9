"""Recited BFCL episodes on one core, verdicts included.

python tests/benchmarks/bfcl_episodes.py

All processes, this one too, share one core. CPU seconds are theirs together, so that a busy machine matters little.
"""

import time
from pathlib import Path

from recited_episodes import recited, stay_on_one_core
from result_file import write_result

from tasks.core.worlds.bfcl.interpreter import python_executable
from tasks.core.worlds.bfcl.pool import BfclPool
from tasks.core.worlds.bfcl.world import BfclWorld, parted

EVERY = 2
"""Stride: one in so many of the tasks of all splits is played."""


def measure() -> dict[str, float]:
    stay_on_one_core()
    begin = time.perf_counter()
    pool = BfclPool(python_executable())
    listed = pool.tasks()
    started = time.perf_counter() - begin
    world = BfclWorld(parted(listed, 2502), pool)
    turns = {one["id"]: world.demonstration(one["id"]) for one in listed[::EVERY]}
    return recited(world, turns, started)


if __name__ == "__main__":
    assert Path("pyproject.toml").exists(), "run it in the repository's root"
    write_result("bfcl_episodes", measure(), packages=())
