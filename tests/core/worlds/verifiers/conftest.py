"""The interpreter of verifiers, made once per machine and kept under .loopline/; a world for each environment."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tasks.core.config.splits import SPLITS
from tasks.core.worlds.verifiers.interpreter import INTERPRETERS, python_executable
from tasks.core.worlds.verifiers.pool import VerifiersPool
from tasks.core.worlds.verifiers.settings import VerifiersConfig, VerifiersSplit, VerifiersSplits
from tasks.core.worlds.verifiers.tasks import parted
from tasks.core.worlds.verifiers.world import VerifiersWorld

PROJECT = Path(__file__).parents[4]
GAMES = ("nltk==3.9.2", "textarena==0.7.4")
FEW = VerifiersSplits(
    train=VerifiersSplit(tasks=4),
    dev=VerifiersSplit(tasks=2),
    test_normal=VerifiersSplit(tasks=2),
    test_challenge=VerifiersSplit(tasks=2),
)
Opened = Callable[..., VerifiersWorld]


def config_of(environment: str, **knobs: Any) -> VerifiersConfig:
    folder = str(PROJECT / "tests" / "verifiers_environments")
    return VerifiersConfig(**{"environment": environment, "folder": folder, "splits": FEW, **knobs})


def each_its_split(settings: Sequence[dict[str, Any]]) -> VerifiersSplits:
    """Return splits of a task each with up to four settings in turn, which one process can serve."""
    given = [VerifiersSplit(tasks=1, settings=one) for one in settings]
    return VerifiersSplits(**dict(zip(SPLITS, given, strict=False)), **dict.fromkeys(SPLITS[len(given) :], given[0]))


def pool_of(config: VerifiersConfig) -> VerifiersPool:
    return VerifiersPool(config, python_executable(config.packages, PROJECT / INTERPRETERS))


@pytest.fixture(scope="module")
def opened() -> Iterator[Opened]:
    """Return an environment's world; one of the same knobs is made once."""
    worlds: dict[str, VerifiersWorld] = {}

    def world_of(environment: str, **knobs: Any) -> VerifiersWorld:
        config = config_of(environment, **knobs)
        key = config.model_dump_json()
        if key not in worlds:
            pool = pool_of(config)
            worlds[key] = VerifiersWorld(parted(pool.listed(), config, 1), pool, config)
        return worlds[key]

    yield world_of
    for world in worlds.values():
        world.close()
