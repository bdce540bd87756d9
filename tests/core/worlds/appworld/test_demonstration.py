"""Demonstrations: oracles as turns, played through the agent loop on the real engine with the shipped tokenizer."""

import random
from functools import partial
from pathlib import Path

import pytest

from flows.params_file import params_of
from tasks.core.config.collection import AgentLimits
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.loading import load_tokenizer
from tasks.core.recital import ScriptedEngine, flawed_engine, oracle_engine
from tasks.core.records.files import ArtifactError
from tasks.core.rollouts.planning import PlaySettings, plan_rollouts
from tasks.core.rollouts.playing import play_rollouts
from tasks.core.worlds.appworld.kind import AppWorldConfig
from tasks.core.worlds.appworld.pool import EpisodePool
from tasks.core.worlds.appworld.root import verify_root
from tasks.core.worlds.appworld.world import AppWorldTasks, demonstration

SHIPPED = Path(__file__).parents[4] / "data" / "base_policies" / "pocket"
SETTINGS = PlaySettings(1.0, AgentLimits(max_tokens_per_turn=8192), max_concurrent_episodes=8, world_retries=0)


def write_oracle(root: Path, source: str) -> None:
    path = root / "data" / "tasks" / "a_1" / "ground_truth" / "compiled_solution.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)


@pytest.mark.parametrize(("most_turns", "statements"), [(8, 0), (8, 1), (8, 8), (8, 9), (8, 39), (3, 7)])
def test_statements_become_few_turns_and_the_last_completes(most_turns: int, statements: int, tmp_path: Path) -> None:
    body = [f"x{number} = {number}" for number in range(statements)] + ["apis.supervisor.complete_task()"]
    write_oracle(tmp_path, "def solution(apis, requester):\n    " + "\n    ".join(body))
    turns = demonstration(tmp_path, most_turns, "a_1")
    assert len(turns) <= most_turns + 1 and turns[-1] == "```python\napis.supervisor.complete_task()\n```"
    code = [line for turn in turns for line in turn.splitlines()[1:-1]]
    assert code == body


def test_each_statement_is_a_turn_where_none_is_grouped(tmp_path: Path) -> None:
    write_oracle(
        tmp_path, "def solution(apis, requester):\n    x = 1\n    for y in (x, 2):\n        x += y\n    z = x\n    z"
    )
    blocks = ["x = 1", "for y in (x, 2):\n    x += y", "z = x", "z"]
    assert demonstration(tmp_path, None, "a_1") == [f"```python\n{block}\n```" for block in blocks]


@pytest.mark.parametrize("source", ["def solution(:", "x = 1", "def solution(a):\n    1\ndef solution(b):\n    2"])
def test_a_broken_oracle_is_named(source: str, tmp_path: Path) -> None:
    write_oracle(tmp_path, source)
    with pytest.raises(ArtifactError, match=r"compiled_solution\.py: expected one function named solution"):
        demonstration(tmp_path, None, "a_1")
    with pytest.raises(ArtifactError, match=r"missing; this root has no oracle for task b_1"):
        demonstration(tmp_path, None, "b_1")


def test_official_solutions_are_not_shown() -> None:
    world = AppWorldTasks({"train": ()}, lambda task_id: pytest.fail("opened"), lambda: None, AppWorldConfig(), "first")
    with pytest.raises(ValueError, match="need an authored AppWorld root"):
        world.demonstration("a_1")


@pytest.mark.appworld
@pytest.mark.parametrize("most_turns", [8, None])
def test_recited_oracles_solve_authored_tasks_and_flaws_do_not(
    most_turns: int | None, appworld_python: Path, appworld_root: Path
) -> None:
    chat = ChatFormat(load_tokenizer(SHIPPED))
    pool = EpisodePool(appworld_python, appworld_root)
    tasks = verify_root(appworld_root).tasks
    recite = partial(demonstration, appworld_root, most_turns)
    world = AppWorldTasks(tasks, pool.open, pool.close, params_of("appworld_recited").world.settings, "first", recite)
    chosen = random.Random(0).sample(tasks["train"], 6)
    planned = plan_rollouts(chosen, 3, seed=1)

    def play(engine: ScriptedEngine) -> list[dict[str, object]]:
        return play_rollouts(world, engine, chat, planned, SETTINGS, policy=None)

    try:
        solved, mixed = play(oracle_engine(world, chat)), play(flawed_engine(world, chat))
    finally:
        world.close()
    assert all(row["success"] for row in solved), [row["tests_failed"] for row in solved]
    assert 0 < sum(bool(row["success"]) for row in mixed) < len(mixed)
    assert {row["end_reason"] for row in mixed} == {"completed"}
