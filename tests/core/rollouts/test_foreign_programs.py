"""Agents that nobody here wrote, as they are: each solves one task by recited turns, and fails another."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tasks.core.config.collection import AgentLimits
from tasks.core.config.splits import SPLITS
from tasks.core.config.world import WorldSection
from tasks.core.interfaces.world import World
from tasks.core.interfaces.world_kind import open_world
from tasks.core.interpreters import INTERPRETERS, python_executable
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.recital import ScriptedEngine
from tasks.core.rollouts.planning import PlaySettings, plan_rollouts
from tasks.core.rollouts.playing import play_rollouts
from tasks.core.rollouts.scheduler import CollectionStats
from tasks.core.text_games.task_files import write_tasks
from tasks.core.tool_calls import call_text
from tasks.core.worlds.program.world import TaskLine
from tasks.core.worlds.tau2.kind import TAU2, Tau2Config
from tasks.core.worlds.tau2.pool import Tau2Pool
from tasks.core.worlds.tau2.tasks import parted
from tasks.core.worlds.tau2.world import Tau2World

pytestmark = [pytest.mark.program, pytest.mark.timeout(1200)]
PROGRAMS = Path(__file__).parents[2] / "programs"
TURNS = {
    "scienceworld": (12, 2),
    "smolagents": (2, 1),
    "agents_sdk": (2, 1),
    "inspect": (1, 1),
    "verifiers": (2, 1),
    "verifiers_classic": (2, 1),
}
DONE = call_text([("done", {})], "hermes")


@pytest.mark.parametrize("name", TURNS)
def test_a_foreign_program_plays_and_reports(name: str, chat: ChatFormat, tmp_path: Path) -> None:
    lines = [TaskLine.model_validate_json(line) for line in (PROGRAMS / name / "tasks.jsonl").read_text().splitlines()]
    with closing(program(name, lines, tmp_path)) as world:
        rows = play(world, chat, {line.id: world.demonstration(line.id) for line in lines})
    solved = {row["task_id"]: (row["success"], len(row["turns"])) for row in rows}
    good, bad = (line.id for line in lines)
    assert solved == {good: (True, TURNS[name][0]), bad: (False, TURNS[name][1])}
    assert all(row["sequence_begins"] == [0] for row in rows)


def test_the_solo_agent_of_tau2_is_judged_as_in_its_world(chat: ChatFormat, tmp_path: Path) -> None:
    """Ten tasks by the official solution; then six by its first half, no call but `done`, or a word."""
    settings, pool = Tau2Config(train="full", calls="hermes"), Tau2Pool(python_executable(INTERPRETERS, TAU2))
    parts = parted(*pool.tasks(), settings.train, 2502)
    tasks = parts["train"][::200]
    lines = [TaskLine(id=task.task_id) for task in tasks]
    with (
        closing(Tau2World(parts | {"train": tasks}, pool, settings)) as ours,
        closing(program("tau2_solo", lines, tmp_path)) as theirs,
    ):
        solutions = {line.id: ours.demonstration(line.id) for line in lines}
        short = {
            name: ([*turns[: len(turns) // 2], DONE], [DONE], ["I am done."])[number % 3]
            for number, (name, turns) in enumerate([*solutions.items()][:6])
        }
        for turns in (solutions, short):
            ended, verdicts = (
                {row["task_id"]: (row["success"], len(row["turns"])) for row in play(world, chat, turns)}
                for world in (ours, theirs)
            )
            assert ended == verdicts == {name: (turns is solutions, len(turns[name])) for name in turns}


def program(name: str, lines: Sequence[TaskLine], folder: Path) -> Any:
    knobs = {"command": ("python", "agent.py"), "folder": str(PROGRAMS / name), "requirements": "requirements.txt"}
    write_tasks(folder / "world", {split: [line.task(split) for line in lines if split == "train"] for split in SPLITS})
    return open_world(WorldSection.of("program", program=knobs), folder / "world")


def play(world: World, chat: ChatFormat, turns: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """Play tasks of train by recited turns; no fault is allowed."""
    limits, stats = AgentLimits(max_turns=60, max_tokens_per_turn=400), CollectionStats()
    settings = PlaySettings(temperature=1.0, limits=limits, max_concurrent_episodes=2, world_retries=0)
    engine = ScriptedEngine("oracle", chat, lambda task, seed: turns[task])
    planned = plan_rollouts([task for task in world.tasks("train") if task.task_id in turns], 1, 3)
    rows = play_rollouts(world, engine, chat, planned, settings, policy=None, stats=stats)
    assert not stats.world_faults
    return rows
