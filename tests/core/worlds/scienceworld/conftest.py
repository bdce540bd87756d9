"""ScienceWorld's interpreter and Java, made once per machine, and one pool for all tests that leave it whole."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tasks.core.interpreters import INTERPRETERS
from tasks.core.worlds.scienceworld.interpreter import java_executable, python_executable
from tasks.core.worlds.scienceworld.pool import SimulatorPool
from tasks.core.worlds.scienceworld.tasks import listed
from tasks.core.worlds.scienceworld.world import PooledSession

FOLDER = Path(__file__).parents[4] / INTERPRETERS
PLANT = ("find-plant", 225)
PLANT_GOLD = (
    *("open door to hallway", "go to hallway", "open door to greenhouse", "go to greenhouse", "look around"),
    *("focus on adult banana tree", "pick up flower pot 5", "open door to hallway", "go to hallway"),
    *("open door to living room", "go to living room"),
    "move flower pot 5 containing banana tree and soil in inventory to orange box",
)
"""The official solution of `PLANT`."""

Open = Callable[[str, int], PooledSession]


def new_pool() -> SimulatorPool:
    return SimulatorPool(python_executable(FOLDER), java_executable(FOLDER))


@pytest.fixture(scope="session")
def pool() -> Iterator[SimulatorPool]:
    opened = new_pool()
    yield opened
    opened.close()


@pytest.fixture
def open_session(pool: SimulatorPool) -> Iterator[Open]:
    """Opens a variation of a type; closes all that it opened after the test."""
    sessions: list[PooledSession] = []

    def opened(name: str, variation: int) -> PooledSession:
        task = listed("train", 0, type=name, variation=variation, instruction="recorded", gold=())
        sessions.append(PooledSession(pool, task))
        return sessions[-1]

    yield opened
    for session in sessions:
        session.close()
