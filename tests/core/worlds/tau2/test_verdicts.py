"""Episodes and verdicts against the package's own runner and evaluation (`official.py`)."""

import json
import random
import subprocess
from difflib import unified_diff
from pathlib import Path

import pytest

from tasks.core.tool_calls import Result, answer_text
from tasks.core.worlds.tau2.pool import Tau2Pool
from tasks.core.worlds.tau2.world import Tau2World
from tests.core.worlds.tau2.conftest import PROJECT
from tests.core.worlds.tau2.recited import (
    FIXES,
    HAND_OVER,
    TOGGLES,
    Call,
    as_lines,
    one_each,
    play,
    random_messages,
    solution_of,
)

pytestmark = [pytest.mark.tau2, pytest.mark.timeout(1800)]
EVERY, RANDOM = 60, 40
"""Stride over the 2,285 tasks, and random episodes; 1 and 2,000 compare all in a quarter of an hour."""
Episodes = list[tuple[str, list[list[Call]]]]


def test_episodes_end_and_are_judged_as_by_the_official_runner(python: Path, pool: Tau2Pool, world: Tau2World) -> None:
    compare(python, pool, world, EVERY, RANDOM)


def compare(python: Path, pool: Tau2Pool, world: Tau2World, every: int, number: int) -> int:
    """Play every so-manieth task four ways and so many random episodes here and there; return the number of them."""
    listed = [row["id"] for row in pool.tasks()[0]]
    held = [task_id for task_id in listed if task_id in world._by_id]
    episodes: Episodes = []
    for task_id in held[::every]:
        for calls in (solution_of(pool, task_id), [], FIXES, [*FIXES, *TOGGLES], HAND_OVER):
            episodes.append((task_id, one_each(calls)))
    draw, tools = random.Random(0), pool.task(listed[0])["tools"]
    for _ in range(number):
        task_id = draw.choice(held)
        episodes.append((task_id, random_messages(tools, solution_of(pool, task_id), draw)))
    for (task_id, messages), line in zip(episodes, _official(python, episodes), strict=True):
        official = json.loads(line)
        seen, verdict = play(world, task_id, messages)
        raised = isinstance(official["reward"], str)
        assert verdict.success == (not raised and official["reward"] == 1), (task_id, messages, official, verdict)
        assert 0 <= verdict.episode_return <= 1
        shown = [text for text in (observation.text for observation in seen) if text != "The ticket is closed."]
        told = "\n".join(_shown(messages, official["said"]))
        assert "\n".join(shown) == told, (task_id, messages, *unified_diff(shown, told.splitlines()))
        assert seen[-1].done and (official["ending"] == "agent_stop" or not verdict.success)
    return len(episodes)


def _official(python: Path, episodes: Episodes) -> list[str]:
    done = subprocess.run(
        [str(python), "-m", "tests.core.worlds.tau2.official"],
        input="".join(as_lines(episodes)),
        capture_output=True,
        text=True,
        cwd=PROJECT,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def _shown(messages: list[list[Call]], said: list[str]) -> list[str]:
    """The official runner's answers, as an agent is shown them."""
    from tasks.core.tool_calls import Call as Written

    shown, rest = [], list(said)
    for calls in messages:
        if not rest:
            break
        answers = [Result(rest.pop(0), error=False) for _ in calls]
        shown.append(answer_text([Written("", name, arguments) for name, arguments in calls], answers, "json"))
    return shown


def test_the_limits_are_the_official_runners(pool: Tau2Pool, world: Tau2World, python: Path) -> None:
    """`done` counts up to turn 100; the 101st turn reaches the limit of steps, and the tenth error that of errors."""
    task_id = world.tasks("test_normal")[0].task_id
    looks, wrong = [("check_sim_status", {})], [("no_tool", {})]
    solved = [[call] for call in solution_of(pool, task_id)]
    done: list[list[Call]] = [[("done", {})]]
    episodes: Episodes = [
        (task_id, [*solved, *[looks] * (99 - len(solved)), *done]),
        (task_id, [*solved, *[looks] * (100 - len(solved)), *done]),
        (task_id, [*solved, *[looks] * 200]),
        (task_id, [*solved, *[wrong] * 9, *done]),
        (task_id, [*solved, *[wrong] * 10, *done]),
        (task_id, [*solved, [*looks, *wrong * 9], *done]),
        (task_id, [*solved, [("done", {"x": 1}), *looks]]),
    ]
    found = []
    for (_, messages), line in zip(episodes, _official(python, episodes), strict=True):
        seen, verdict = play(world, task_id, messages)
        assert seen[-1].done and verdict.success == (json.loads(line)["reward"] == 1.0), line
        found.append((len(seen), verdict.success))
    assert [success for _, success in found] == [True, False, False, True, False, True, True]
    assert [turns for turns, _ in found[:3]] == [100, 101, 101]


def test_no_verdict_depends_on_the_episodes_before_it(pool: Tau2Pool, world: Tau2World) -> None:
    """In the package, a task whose fault is a bad VPN spoils the VPN of every later episode of its process."""
    faults = {task.task_id: task.task_id.split("]")[1].split("[")[0] for task in world.tasks("train")}
    spoiling = next(task for task, fault in faults.items() if "bad_vpn" in fault)
    spoilt = next(task for task, fault in faults.items() if task.startswith("[mobile_data") and "vpn" not in fault)
    connected = one_each([*solution_of(pool, spoilt), ("connect_vpn", {}), ("run_speed_test", {})])
    before = play(world, spoilt, connected)
    play(world, spoiling, one_each(solution_of(pool, spoiling)))
    after = play(world, spoilt, connected)
    assert [seen.text for seen in after[0]] == [seen.text for seen in before[0]]
    assert after[1] == before[1] and before[1].success
