"""Agents that nobody here wrote, as they are: each solves one task by recited turns, and fails another."""

from contextlib import closing
from pathlib import Path

import pytest

from tasks.core.config.collection import AgentLimits
from tasks.core.config.splits import SPLITS
from tasks.core.config.world import WorldSection
from tasks.core.interfaces.world_kind import open_world
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.recital import ScriptedEngine
from tasks.core.rollouts.planning import PlaySettings, plan_rollouts
from tasks.core.rollouts.playing import play_rollouts
from tasks.core.rollouts.scheduler import CollectionStats
from tasks.core.text_games.task_files import write_tasks
from tasks.core.worlds.program.tasks import TaskLine

pytestmark = [pytest.mark.program, pytest.mark.timeout(1200)]
PROGRAMS = Path(__file__).parents[2] / "programs"
TURNS = {"scienceworld": (12, 2), "smolagents": (2, 1), "agents_sdk": (2, 1), "inspect": (1, 1)}


@pytest.mark.parametrize("name", TURNS)
def test_a_foreign_program_plays_and_reports(name: str, chat: ChatFormat, tmp_path: Path) -> None:
    folder = PROGRAMS / name
    knobs = {"command": ("python", "agent.py"), "folder": str(folder), "requirements": "requirements.txt"}
    lines = [TaskLine.model_validate_json(line) for line in (folder / "tasks.jsonl").read_text().splitlines()]
    write_tasks(
        tmp_path / "world", {split: [line.task(split) for line in lines if split == "train"] for split in SPLITS}
    )
    limits, stats = AgentLimits(max_turns=20, max_tokens_per_turn=400), CollectionStats()
    settings = PlaySettings(temperature=1.0, limits=limits, max_concurrent_episodes=2, world_retries=0)
    with closing(open_world(WorldSection.of("program", program=knobs), tmp_path / "world")) as world:
        engine = ScriptedEngine("oracle", chat, lambda task, seed: world.demonstration(task))
        planned = plan_rollouts(world.tasks("train"), 1, 3)
        rows = play_rollouts(world, engine, chat, planned, settings, policy=None, stats=stats)
    assert not stats.world_faults
    solved = {row["task_id"]: (row["success"], len(row["turns"])) for row in rows}
    good, bad = (line.id for line in lines)
    assert solved == {good: (True, TURNS[name][0]), bad: (False, TURNS[name][1])}
    assert all(row["sequence_begins"] == [0] for row in rows)
