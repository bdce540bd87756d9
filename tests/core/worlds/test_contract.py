"""The contract of all worlds over those of the repository. A new one adds itself to `WORLDS`."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tasks.core.config.splits import SPLITS
from tasks.core.config.world import WorldConfig, WorldSection
from tasks.core.interfaces import world_contract
from tasks.core.interfaces.world import World
from tasks.core.interfaces.world_contract import CHECKS, PLAYED, Case, Check, findings_of, recited, rule_of, some_tasks
from tasks.core.interfaces.world_kind import open_world, prepare_world_folder
from tasks.core.worlds.appworld.kind import AppWorldConfig, AuthoredCounts
from tasks.core.worlds.frozen_lake.kind import FrozenLakeConfig
from tasks.core.worlds.sokoban.kind import SokobanConfig
from tests.openenv_servers import served_config, served_world

WORLDS = {
    "pocketworld": WorldSection.of("pocketworld"),
    "bandit": WorldSection.of("bandit"),
    "frozen_lake, firm": WorldSection.of("frozen_lake", frozen_lake=FrozenLakeConfig(slippery=False)),
    "frozen_lake, slippery": WorldSection.of("frozen_lake"),
    "sokoban": WorldSection.of("sokoban"),
    "sokoban, no thinking": WorldSection.of("sokoban", sokoban=SokobanConfig(thinking=False)),
    "webshop": WorldSection.of("webshop"),
    "appworld": WorldSection.of(
        "appworld", appworld=AppWorldConfig(counts=AuthoredCounts(train=3, dev=3, test_normal=3, test_challenge=3))
    ),
    "program": WorldSection.of(
        "program", program={"command": ("python", "letters.py"), "folder": "docs/own_agent/letters"}
    ),
    "tau2": WorldSection.of("tau2"),
}
"""By a name of the test's. Counts are small where preparing a task is slow."""
SERVED = {f"openenv, {name} served": name for name in ("pocketworld", "appworld")}
"""Worlds as OpenEnv's protocol leaves them: the same contract."""
LANES = {name: getattr(pytest.mark, name) for name in ("appworld", "tau2")}
LANES |= {served: LANES.get(name, pytest.mark.openenv) for served, name in SERVED.items()}
ONE_OF_A_SPLIT = frozenset({*SERVED, "appworld", "program"})
"""Worlds of which one task of each split is played: those behind a server, which are played in this process as well,
and those whose episodes take seconds. The others of a scenario differ in their numbers and names."""
BY_CHANCE = frozenset({"frozen_lake, slippery"})
"""Worlds in which luck decides, so that no fixed turns solve a task: they must say so (ValueError)."""


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
def case(name: str, config: WorldConfig, folder: Path, world: World) -> Case:
    return Case(config, folder, world, some_tasks(world, 1 if name in ONE_OF_A_SPLIT else PLAYED))


@pytest.mark.parametrize("check", CHECKS, ids=rule_of)
def test_the_world_keeps_the_contract(check: Check, case: Case) -> None:
    check(case)


def test_what_doing_nothing_earns_is_told_and_warned_of_from_a_limit_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle agent of pocketworld keeps a quarter of the checks, or a little more: nothing is broken."""
    monkeypatch.setattr(world_contract, "CHECKS", ())
    for limit, state in ((0.3, "note"), (0.2, "warning")):
        monkeypatch.setattr(world_contract, "MUCH_FOR_NOTHING", limit)
        ((found, line),) = findings_of(WORLDS["pocketworld"])
        assert found == state and re.match(r"doing nothing earns 0\.2\d of 1", line)


def test_an_oracle_without_a_solution_is_told_and_not_called_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_contract, "CHECKS", (world_contract.the_oracle_solves_every_task,))
    first, _ = findings_of(WORLDS["frozen_lake, slippery"])
    assert first == ("note", "no task has a solution, so the oracle solves none")


def test_with_one_task_in_each_split_another_seed_may_write_the_same_bytes(tmp_path: Path) -> None:
    tasks = "".join(json.dumps({"id": f"{split}1", "split": split}) + "\n" for split in SPLITS)
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "tasks.jsonl").write_text(tasks)
    config = WorldSection.of("program", program={"command": ("python", "agent.py"), "folder": str(folder)})
    prepare_world_folder(config, tmp_path / "world")
    with closing(open_world(config, tmp_path / "world")) as world:
        world_contract.the_same_seed_prepares_the_same_bytes(Case(config, tmp_path / "world", world, ()))


def test_a_world_recites_solutions_or_says_that_chance_decides(name: str, case: Case) -> None:
    for task in case.played:
        if name in BY_CHANCE:
            with pytest.raises(ValueError, match=r"\w"):
                case.world.demonstration(task.task_id)  # type: ignore[attr-defined]
        else:
            assert recited(case.world, task)
