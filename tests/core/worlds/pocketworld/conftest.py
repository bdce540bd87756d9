from collections.abc import Callable

import pytest

from tasks.core.config.splits import Split
from tasks.core.worlds.pocketworld.authoring import generate_specs
from tasks.core.worlds.pocketworld.demonstrations import TrustedRepl
from tasks.core.worlds.pocketworld.episode import PocketEpisode
from tasks.core.worlds.pocketworld.kind import PocketworldConfig
from tasks.core.worlds.pocketworld.problem import Problem, TaskSpec


@pytest.fixture(scope="session")
def specs() -> dict[Split, list[TaskSpec]]:
    return generate_specs(2502, PocketworldConfig())


@pytest.fixture(scope="session")
def all_specs(specs: dict[Split, list[TaskSpec]]) -> list[TaskSpec]:
    return [spec for tasks in specs.values() for spec in tasks]


@pytest.fixture
def play() -> Callable[[Problem, list[str]], PocketEpisode]:
    """Play turns in this process, in order; the episode is returned for its verdict."""

    def played(problem: Problem, turns: list[str]) -> PocketEpisode:
        episode = PocketEpisode(problem, TrustedRepl())
        for text in turns:
            episode.step(text)
        return episode

    return played
