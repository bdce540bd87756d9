"""τ²-bench's interpreter, made once per machine and kept under .loopline/; one pool and world for all tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.cli.app import main
from tasks.core.interpreters import INTERPRETERS, python_executable
from tasks.core.worlds.tau2.kind import TAU2, Tau2Config
from tasks.core.worlds.tau2.pool import Tau2Pool
from tasks.core.worlds.tau2.tasks import parted
from tasks.core.worlds.tau2.world import Tau2World
from tests.core.chat_servers.conftest import ChatServer

PROJECT = Path(__file__).parents[4]
TICKET = Tau2Config(prompt="ticket", train="full")


@pytest.fixture(scope="session")
def python() -> Path:
    return python_executable(PROJECT / INTERPRETERS, TAU2)


@pytest.fixture(scope="session")
def pool(python: Path) -> Iterator[Tau2Pool]:
    opened = Tau2Pool(python)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def world(pool: Tau2Pool) -> Tau2World:
    """A world in which train has all that no other split takes."""
    return Tau2World(parted(*pool.tasks(), TICKET.train, 2502), pool, TICKET)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the base policies and the interpreters, and a store of MLflow."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    for name in ("data/base_policies", str(INTERPRETERS)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(PROJECT / name)
    return tmp_path


def scored(agent: ChatServer, model: str, split: str, runs: int, settings: dict[str, str]) -> int:
    """Score a server's model by the command; return its exit code."""
    settings = {"engine.chat_api.traffic.key_variable": "LOOPLINE_TEST_KEY", **settings}
    arguments = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    return main(["score", agent.url, model, "--world", "tau2", "--split", split, "--runs", str(runs), *arguments])
