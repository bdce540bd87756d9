"""BFCL's interpreter, made once per machine and kept under .loopline/; one pool and world for all tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.core.config.splits import SPLITS
from tasks.core.interfaces.world import Task
from tasks.core.worlds.bfcl.interpreter import INTERPRETERS, python_executable
from tasks.core.worlds.bfcl.player import PoolLimits
from tasks.core.worlds.bfcl.pool import BfclPool
from tasks.core.worlds.bfcl.world import BfclWorld, parted

PROJECT = Path(__file__).parents[4]
STEPS_PER_TURN = 20
LIMITS = PoolLimits(wall_seconds_per_turn=8.0, cpu_seconds_per_turn=1.0)


@pytest.fixture(scope="session")
def pool() -> Iterator[BfclPool]:
    opened = BfclPool(python_executable(PROJECT / INTERPRETERS), LIMITS)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def world(pool: BfclPool) -> BfclWorld:
    return BfclWorld(parted(pool.tasks(), 2502), pool)


@pytest.fixture(scope="session")
def tasks(world: BfclWorld) -> list[Task]:
    """All 800."""
    return [task for split in SPLITS for task in world.tasks(split)]
