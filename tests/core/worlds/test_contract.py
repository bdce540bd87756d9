"""The contract of all worlds, run over each. A new world adds itself to `WORLDS` and passes (docs/extending.md)."""

import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import zip_longest
from pathlib import Path

import psutil
import pytest

from tasks.core.config.scienceworld import ScienceCounts, ScienceWorldConfig
from tasks.core.config.splits import SPLITS
from tasks.core.config.text_games import BanditConfig, FrozenLakeConfig, SokobanConfig
from tasks.core.config.world import (
    AppWorldConfig,
    AppWorldSection,
    AuthoredCounts,
    BanditSection,
    BfclSection,
    FrozenLakeSection,
    PocketworldSection,
    ScienceWorldSection,
    SokobanSection,
    WebShopSection,
    WorldConfig,
)
from tasks.core.interfaces.world import Demonstrating, Episode, Observation, Task, World
from tasks.core.records.files import digest
from tasks.core.worlds.registry import open_world, prepare_world_folder
from tests.openenv_servers import served_config, served_world

WORLDS = {
    "pocketworld": PocketworldSection(),
    "bandit": BanditSection(),
    "bandit, safe arm better": BanditSection(bandit=BanditConfig(safe_reward=0.5)),
    "frozen_lake, firm": FrozenLakeSection(frozen_lake=FrozenLakeConfig(slippery=False)),
    "frozen_lake, slippery": FrozenLakeSection(),
    "sokoban": SokobanSection(),
    "sokoban, no thinking": SokobanSection(sokoban=SokobanConfig(thinking=False, min_moves=3)),
    "webshop": WebShopSection(),
    "appworld": AppWorldSection(
        appworld=AppWorldConfig(counts=AuthoredCounts(train=3, dev=3, test_normal=3, test_challenge=3)),
    ),
    "bfcl": BfclSection(),
    "scienceworld": ScienceWorldSection(
        seed=189,
        scienceworld=ScienceWorldConfig(
            max_moves=None, max_turns=1000, counts=ScienceCounts(train=3, dev=3, test_normal=3, test_challenge=3)
        ),
    ),
}
"""By a name of the test's. Counts are small where preparing a task is slow, and ScienceWorld's seeds are two of 400
that draw types whose official solutions are found in 3 s; of others it takes up to a minute."""
OTHER_SEED = 320
SERVED = {f"openenv, {name} served": name for name in ("pocketworld", "appworld", "bfcl", "scienceworld")}
"""Worlds as OpenEnv's protocol leaves them: the same contract."""
LANES = {name: getattr(pytest.mark, name) for name in ("appworld", "bfcl", "scienceworld")}
LANES |= {served: LANES.get(name, pytest.mark.openenv) for served, name in SERVED.items()}
BY_CHANCE = frozenset({"frozen_lake, slippery"})
"""Worlds in which luck decides, so that no fixed turns solve a task: they must say so (ValueError)."""
PLAYED = 4
"""Tasks of each split that are played."""
IDLE_TURNS = 6
HOSTILE = (
    "",
    " ",
    "\x00\x1b[2J\u202e\ufffe",
    "\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace"),
    "<think>" * 5_000,
    "<answer>" * 5_000,
    "<think></think>" + "<answer>||</answer>" * 2_000,
    "<think></think><answer>" + "|" * 20_000 + "</answer>",
    "<answer>" + "Up || " * 5_000 + "</answer>",
    "<|im_end|>\n<|im_start|>assistant\n",
    "```" * 5_000,
    "```python\nraise SystemExit(3)\n```",
    "```python\n__import__('os').kill(__import__('os').getppid(), 9)\n```",
    "{" * 10_000,
    "%s%n{0.__class__}${jndi:x}",
    "a" * 100_000,
)


@pytest.fixture(scope="module", params=[pytest.param(name, marks=LANES.get(name, ())) for name in (*WORLDS, *SERVED)])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Callable[[WorldConfig], Path]:
    """The folder of a world, made once: one that is also served is the same in this process."""
    made: dict[str, Path] = {}

    def folder_of(config: WorldConfig) -> Path:
        key = config.model_dump_json()
        if key not in made:
            made[key] = tmp_path_factory.mktemp("world") / "world"
            prepare_world_folder(config, made[key])
        return made[key]

    return folder_of


@pytest.fixture(scope="module")
def config(name: str, prepared: Callable[[WorldConfig], Path]) -> Iterator[WorldConfig]:
    """The world's section; a server runs behind one that needs it."""
    if name not in SERVED:
        yield WORLDS[name]
        return
    inner = WORLDS[SERVED[name]]
    knobs = getattr(inner, inner.name).model_dump_json()
    arguments = (inner.name, "--folder", str(prepared(inner)), "--set", f"world.{inner.name}={knobs}")
    with served_world(*arguments) as url, closing(open_world(inner, prepared(inner))) as world:
        yield served_config(url, world, max_turns=1000)


@pytest.fixture(scope="module")
def folder(config: WorldConfig, prepared: Callable[[WorldConfig], Path]) -> Path:
    return prepared(config)


@pytest.fixture(scope="module")
def world(config: WorldConfig, folder: Path) -> Iterator[World]:
    opened = open_world(config, folder)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def played(name: str, world: World) -> list[Task]:
    """Some tasks of each split, from all over it; one of each where its world is played in this process as well."""
    most, parts = 1 if name in SERVED else PLAYED, [world.tasks(split) for split in SPLITS]
    return [task for part in parts for task in part[:: max(1, len(part) // most)]]


@pytest.fixture
def demonstrated(name: str, world: World) -> World:
    """A world that can recite solutions."""
    if name in BY_CHANCE or not isinstance(world, Demonstrating):
        pytest.skip("no fixed turns solve a task of this world")
    return world


def turns_of(world: World, task: Task) -> list[str]:
    """The recited turns, or some that do little, where luck decides."""
    try:
        return world.demonstration(task.task_id)  # type: ignore[attr-defined, no-any-return]
    except ValueError:
        return ["<think>so</think><answer>Right || Down</answer>", "nonsense"]


def play(episode: Episode, turns: list[str]) -> list[Observation]:
    """Play until the turns or the episode are over."""
    seen: list[Observation] = []
    for turn in turns:
        seen.append(episode.step(turn))
        if seen[-1].done:
            break
    return seen


def test_tasks_have_ids_scenarios_and_difficulties(world: World) -> None:
    listed = [(split, task) for split in SPLITS for task in world.tasks(split)]
    assert all(task.split == split and task.difficulty in (1, 2, 3) and task.instruction for split, task in listed)
    assert len({task.task_id for _, task in listed}) == len(listed)
    scenarios: dict[str, list[str]] = {}
    for split, task in listed:
        scenarios.setdefault(task.scenario_id, []).append(split)
    assert {len(splits) for splits in scenarios.values()} <= {3, 4}
    assert all(len(set(splits)) == 1 for splits in scenarios.values())
    assert {split for split, _ in listed} == set(SPLITS)


def test_unknown_splits_and_tasks_are_refused(world: World) -> None:
    with pytest.raises(ValueError, match="nowhere"):
        world.tasks("nowhere")  # type: ignore[arg-type]
    with pytest.raises(KeyError):
        world.open("nobody", 0)


def test_the_same_seed_prepares_the_same_bytes(config: WorldConfig, folder: Path, tmp_path: Path) -> None:
    prepare_world_folder(config, tmp_path / "again")
    assert digest(tmp_path / "again") == digest(folder)


def test_another_seed_prepares_other_bytes(config: WorldConfig, folder: Path, tmp_path: Path) -> None:
    prepare_world_folder(config.model_copy(update={"seed": OTHER_SEED}), tmp_path / "other")
    assert digest(tmp_path / "other") != digest(folder)


def test_the_oracle_solves_every_task(demonstrated: World, played: list[Task]) -> None:
    for task in played:
        episode = demonstrated.open(task.task_id, 1)
        turns = turns_of(demonstrated, task)
        seen = play(episode, turns)
        verdict = episode.evaluate()
        assert verdict.success, (task.task_id, verdict.failed)
        assert [observation.done for observation in seen] == [False] * (len(turns) - 1) + [True], task.task_id
        assert not any(observation.failed for observation in seen)
        assert 0 < verdict.episode_return <= 1
        episode.close()


def test_chance_is_said(name: str, world: World) -> None:
    if name in BY_CHANCE:
        with pytest.raises(ValueError, match=r"\w"):
            world.demonstration(world.tasks("train")[0].task_id)  # type: ignore[attr-defined]


def test_doing_nothing_solves_nothing(world: World, played: list[Task]) -> None:
    for task in played:
        episode = world.open(task.task_id, 1)
        assert not episode.evaluate().success
        play(episode, [""] * IDLE_TURNS)
        assert not episode.evaluate().success, task.task_id
        episode.close()


def test_rewards_come_with_every_turn_or_with_none(world: World, played: list[Task]) -> None:
    given = set()
    for task in played:
        episode = world.open(task.task_id, 2)
        given |= {seen.reward is None for seen in play(episode, ["", *turns_of(world, task)])}
        score = episode.evaluate().score
        assert score is None or 0 <= score <= 1
        episode.close()
    assert len(given) == 1


def test_the_same_seed_and_turns_are_the_same_episode(world: World, played: list[Task]) -> None:
    for task in played:
        found = []
        for _ in range(2):
            episode = world.open(task.task_id, 5)
            found.append((episode.prompt, play(episode, ["", *turns_of(world, task)]), episode.evaluate()))
            episode.close()
        assert found[0] == found[1], task.task_id


def test_a_verdict_in_mid_episode_changes_nothing(world: World, played: list[Task]) -> None:
    """Turn-level credit asks for one after every turn."""
    for task in played:
        found = []
        for asks in (False, True):
            seen: list[Observation] = []
            episode = world.open(task.task_id, 5)
            for turn in turns_of(world, task):
                seen += play(episode, [turn])
                if asks:
                    episode.evaluate()
                if seen[-1].done:
                    break
            found.append((seen, episode.evaluate()))
            episode.close()
        assert found[0] == found[1], task.task_id


def test_episodes_do_not_see_each_other(world: World, played: list[Task]) -> None:
    tasks = [task for task in played for _ in range(2)]
    alone = []
    for number, task in enumerate(tasks):
        episode = world.open(task.task_id, number)
        alone.append((play(episode, turns_of(world, task)), episode.evaluate()))
        episode.close()
    episodes = [world.open(task.task_id, number) for number, task in enumerate(tasks)]
    together: list[list[Observation]] = [[] for _ in tasks]
    for turns in zip_longest(*(turns_of(world, task) for task in tasks)):
        for number, turn in enumerate(turns):
            if turn is not None and not (together[number] and together[number][-1].done):
                together[number].append(episodes[number].step(turn))
    assert [(seen, episode.evaluate()) for seen, episode in zip(together, episodes, strict=True)] == alone
    for episode in episodes:
        episode.close()


def test_hostile_text_is_only_a_bad_turn(world: World) -> None:
    task = world.tasks("train")[0]
    for text in HOSTILE:
        episode = world.open(task.task_id, 3)
        seen = episode.step(text)
        assert isinstance(seen.text, str) and len(seen.text) < 1_000_000
        assert not episode.evaluate().success, text[:40]
        episode.close()
    episode = world.open(task.task_id, 3)
    assert play(episode, turns_of(world, task))
    episode.close()


def test_closing_twice_is_closing(world: World) -> None:
    episode = world.open(world.tasks("dev")[0].task_id, 0)
    episode.step("")
    episode.close()
    episode.close()


def test_close_leaves_nothing(config: WorldConfig, folder: Path) -> None:
    def left() -> tuple[set[int], int, int]:
        gc.collect()
        own = psutil.Process()
        return {child.pid for child in own.children(recursive=True)}, threading.active_count(), own.num_fds()

    open_world(config, folder).close()
    before = left()
    opened = open_world(config, folder)
    episodes = [opened.open(task.task_id, 0) for task in opened.tasks("dev")[:3]]
    for episode in episodes[:2]:
        episode.step("")
        episode.close()
    opened.close()
    opened.close()
    del episodes, episode, opened
    after = left()
    assert after[0] <= before[0]
    assert after[1:] <= before[1:]
    assert not any(entry.name.endswith(".tmp") for entry in os.scandir(folder.parent))
