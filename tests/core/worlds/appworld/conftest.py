"""The isolated interpreter and one authored root, both made once per machine and kept under .loopline/."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.core.interpreters import INTERPRETERS, python_executable
from tasks.core.worlds.appworld import layout
from tasks.core.worlds.appworld.kind import APPWORLD
from tasks.core.worlds.appworld.layout import verify_root
from tasks.core.worlds.appworld.pool import EpisodePool, PoolLimits
from tasks.core.worlds.appworld.prepared_root import author_root
from tests.made_once import made_once

LIMITS = PoolLimits(
    wall_seconds_per_run=60.0, cpu_seconds_per_run=1.0, max_concurrent_episodes=4, waiting_seconds=0.5, idle_worlds=2
)
PROJECT = Path(__file__).parents[4]
SEED = 2502
COUNTS = {"train": 111, "dev": 6, "test_normal": 9, "test_challenge": 36, "demonstrations": 9}


@pytest.fixture(scope="session")
def appworld_python() -> Path:
    return python_executable(PROJECT / INTERPRETERS, APPWORLD)


@pytest.fixture(scope="session")
def appworld_root(appworld_python: Path) -> Path:
    """A root of every template, for reading only; made anew when the generator's code changes."""
    package = PROJECT / "tasks" / "core" / "worlds" / "appworld" / "inside" / "authoring"
    code = hashlib.sha256(repr((SEED, COUNTS)).encode())
    for file in sorted(package.rglob("*.py")):
        code.update(file.read_bytes())
    name = f"appworld-{code.hexdigest()[:12]}"
    return made_once(name, lambda root: author_root(root, appworld_python, SEED, COUNTS))


@pytest.fixture(scope="session")
def task_ids(appworld_root: Path) -> list[str]:
    """All training tasks of the authored root."""
    return (appworld_root / "data" / "datasets" / "train.txt").read_text().split()


@pytest.fixture(scope="session")
def task_of_each_template(appworld_root: Path) -> list[str]:
    """One task of each template, in the order of the splits."""
    found: dict[str, str] = {}
    for tasks in verify_root(appworld_root).tasks.values():
        for task in tasks:
            metadata = layout.ground_truth(appworld_root, task.task_id) / "metadata.json"
            found.setdefault(json.loads(metadata.read_text())["template"], task.task_id)
    return list(found.values())


@pytest.fixture(scope="session")
def task_id(appworld_root: Path, task_ids: list[str]) -> str:
    """A task that asks no question."""
    return next(one for one in task_ids if _answer(appworld_root, one) is None)


@pytest.fixture(scope="session")
def question_id(appworld_root: Path, task_ids: list[str]) -> str:
    """A task that asks a question."""
    return next(one for one in task_ids if _answer(appworld_root, one) is not None)


@pytest.fixture(scope="session")
def pool(appworld_python: Path, appworld_root: Path) -> Iterator[EpisodePool]:
    """One pool for all tests that leave it whole: to start one takes some 15 s."""
    pool = EpisodePool(appworld_python, appworld_root, LIMITS)
    yield pool
    pool.close()


def _answer(root: Path, task_id: str) -> object:
    return json.loads((root / "data" / "tasks" / task_id / "ground_truth" / "answer.json").read_text())
