"""Rollouts on OpenEnv servers: the package's own example, from its template, and one that hangs once."""

from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest

from tasks.core.config.collection import AgentLimits
from tasks.core.config.world import WorldSection
from tasks.core.interfaces.world import World
from tasks.core.interfaces.world_kind import open_world, prepare_world_folder
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.processes.addresses import free_port
from tasks.core.recital import oracle_engine
from tasks.core.rollouts.planning import PlaySettings, plan_rollouts
from tasks.core.rollouts.playing import play_rollouts
from tasks.core.rollouts.scheduler import CollectionStats
from tasks.core.worlds.openenv.kind import OpenEnvConfig, OpenEnvScenario, OpenEnvSplits, OpenEnvTask, OpenEnvVerdict
from tests.core.worlds.openenv.test_faults import SCRIPT
from tests.openenv_servers import running

pytestmark = pytest.mark.openenv
NAMES = {"__ENV_NAME__": "shout", "__ENV_CLASS_NAME__": "Shout", "__ENV_TITLE_NAME__": "Shout"}
START = "import sys, uvicorn\nfrom shout.server.app import app\nprint('http://127.0.0.1:' + sys.argv[1], flush=True)\n"


@pytest.fixture
def example(tmp_path: Path) -> Iterator[str]:
    """The package's example environment, which echoes, made of the template that `openenv init` fills in."""
    spec = find_spec("openenv")
    assert spec is not None and spec.origin is not None
    template = Path(spec.origin).parent / "cli" / "templates" / "openenv_env"
    for source in template.rglob("*.py"):
        place, text = str(source.relative_to(template)), source.read_text()
        for name, value in NAMES.items():
            place, text = place.replace(name, value), text.replace(name, value)
        target = tmp_path / "shout" / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    (tmp_path / "start.py").write_text(START + "uvicorn.run(app, port=int(sys.argv[1]), log_level='critical')\n")
    with running(str(tmp_path / "start.py"), str(free_port())) as (url, _):
        yield url


def world_at(url: str, folder: Path, *solution: str, **rules: object) -> World:
    """One scenario in each split, whose solution is given."""
    scenario = OpenEnvScenario(instruction="Talk.", tasks=(OpenEnvTask(solution=solution),) * 3)
    splits = OpenEnvSplits(train=(scenario,), dev=(scenario,), test_normal=(scenario,), test_challenge=(scenario,))
    section = OpenEnvConfig(url=url, action={"message": "$text"}, splits=splits, **rules)  # type: ignore[arg-type]
    config = WorldSection.of("openenv", openenv=section)
    prepare_world_folder(config, folder)
    return open_world(config, folder)


def test_the_packages_example_is_played_from_tasks_to_rows(example: str, chat: ChatFormat, tmp_path: Path) -> None:
    """It pays a tenth per letter, at most 1, has one session, and never ends: ours ends after two turns."""
    verdict = OpenEnvVerdict(highest=2.0, solved=1.5)
    said = {"observation": ("echoed_message",), "max_turns": 2, "verdict": verdict}
    settings = PlaySettings(1.0, AgentLimits(max_turns=2), max_concurrent_episodes=1, world_retries=0)
    with closing(world_at(example, tmp_path / "world", "hello", "hello, world", **said)) as world:
        planned = plan_rollouts(world.tasks("train"), 2, seed=0)
        rows = play_rollouts(world, oracle_engine(world, chat), chat, planned, settings, policy=None)
    assert len(rows) == 6
    for row in rows:
        assert (row["end_reason"], row["success"], row["return"]) == ("completed", True, 0.75)
        assert row["turn_rewards"] == [0.5, 1.0]
        assert row["tests_passed"] == ["the rewards add up to at least 1.5"]
        text = chat.decode(row["token_ids"])
        assert "Shout environment ready!" in text and text.count("hello") == 3


def test_a_rollout_whose_server_hung_is_played_again_and_counted(chat: ChatFormat, tmp_path: Path) -> None:
    settings = PlaySettings(1.0, AgentLimits(max_turns=30), max_concurrent_episodes=1, world_retries=1)
    stats = CollectionStats()
    with running(SCRIPT, str(free_port())) as (url, _):
        world = world_at(url, tmp_path / "world", "once", answer_s=1.0, observation=("said",))
        with closing(world):
            planned = plan_rollouts(world.tasks("train")[:1], 2, seed=0)
            rows = play_rollouts(world, oracle_engine(world, chat), chat, planned, settings, policy=None, stats=stats)
    assert stats.world_retries == 1
    assert [(row["end_reason"], row["success"], row["world_retries"]) for row in rows] == [
        ("completed", True, 1),
        ("completed", True, 0),
    ]
