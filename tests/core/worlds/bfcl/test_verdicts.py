"""Episodes and verdicts against the package's own, over all tasks."""

import random
from itertools import zip_longest

import pytest

from tasks.core.interfaces.world import Task
from tasks.core.worlds.bfcl.episode import SOLVED
from tasks.core.worlds.bfcl.export import examine
from tasks.core.worlds.bfcl.pool import BfclPool
from tasks.core.worlds.bfcl.world import BfclWorld
from tests.core.worlds.bfcl.recorded_episodes import erring, play

pytestmark = pytest.mark.bfcl

SIDE_EFFECTS = (
    "mkdir(dir_name='intruder')",
    "adjustClimateControl(temperature=17.25, unit='celsius', fanSpeed=3, mode='auto')",
    "add_to_watchlist(stock='QUAS'), add_to_watchlist(stock='OMEG'), trading_logout()",
    "authenticate_travel(client_id='a', client_secret='b', refresh_token='c', grant_type='read', "
    "user_first_name='In', user_last_name='Truder')",
)
"""By block: what no solution asks for and changes the state (a stock may be watched already, or nobody logged in)."""


def solved(world: BfclWorld, task: Task, turns: list[str]) -> bool:
    return play(world, task.task_id, turns).verdict.success


def test_solutions_solve_all_and_silence_none(world: BfclWorld, tasks: list[Task]) -> None:
    unsolved, idle = [], []
    for task in tasks:
        turns = world.demonstration(task.task_id)
        played = play(world, task.task_id, turns)
        if not played.verdict.success or not played.seen[-1].done or len(played.said) != len(turns):
            unsolved.append(task.task_id)
        if solved(world, task, [""] * 8):
            idle.append(task.task_id)
    assert (len(tasks), unsolved, idle) == (800, [], [])


def test_a_call_that_changes_the_state_fails(world: BfclWorld, tasks: list[Task]) -> None:
    survived = []
    for task in (task for task in tasks if "base" in task.task_id):
        turns = world.demonstration(task.task_id)
        last = max(number for number, turn in enumerate(turns) if turn.startswith("["))
        call = SIDE_EFFECTS[int(task.task_id.rpartition("_")[2]) // 50]
        spoiled = [*turns[:last], f"{turns[last][:-1]}, {call}]", *turns[last + 1 :]]
        if solved(world, task, spoiled):
            survived.append(task.task_id)
    assert survived == []


def test_conversations_and_verdicts_are_the_packages_own(pool: BfclPool, world: BfclWorld, tasks: list[Task]) -> None:
    played = {}
    for number, task in enumerate(tasks):
        turns = erring(world.demonstration(task.task_id), random.Random(number))
        played[task.task_id] = play(world, task.task_id, turns)
    examined = examine(pool, {task_id: one.said for task_id, one in played.items()})
    successes = sum(one.verdict.success for one in played.values())
    assert 200 < successes < 700
    for task_id, one in played.items():
        theirs = examined[task_id]
        assert theirs.messages == one.messages, task_id
        assert theirs.valid == one.verdict.success, (task_id, theirs.error, one.verdict)
        assert one.verdict.failed == () or one.verdict.failed[0].startswith(theirs.error)


def test_64_episodes_at_once_and_used_names_change_nothing(world: BfclWorld, tasks: list[Task]) -> None:
    chosen = [task for task in tasks[::25] for _ in range(2)]
    turns = [erring(world.demonstration(task.task_id), random.Random(n % 7)) for n, task in enumerate(chosen)]
    alone = [play(world, task.task_id, said) for task, said in zip(chosen, turns, strict=True)]
    episodes = [world.open(task.task_id, 0) for task in chosen]
    assert len(episodes) == 64
    seen: list[list[object]] = [[] for _ in chosen]
    for row in zip_longest(*(one.said for one in alone)):
        for number, text in enumerate(row):
            if text is not None:
                seen[number].append(episodes[number].step(text))
    for number, episode in enumerate(episodes):
        assert seen[number] == alone[number].seen
        assert episode.evaluate() == episode.evaluate() == alone[number].verdict
        episode.close()


def test_a_step_too_many_ends_the_episode(world: BfclWorld, tasks: list[Task]) -> None:
    task = next(task for task in tasks if len(world.demonstration(task.task_id)) > 4)
    played = play(world, task.task_id, ["[nothing_of_that_name(a=1)]"] * 30)
    assert [one.done for one in played.seen] == [False] * 20 + [True]
    assert all(one.failed and not one.api_calls for one in played.seen)
    (error,) = played.verdict.failed
    assert "force_terminated" in error


def test_calls_are_logged_by_what_they_called(world: BfclWorld, tasks: list[Task]) -> None:
    task = next(task for task in tasks if task.task_id == "multi_turn_base_0")
    episode = world.open(task.task_id, 0)
    seen = episode.step("[pwd(), cd(folder='nowhere'), open(file='x'), ls(b=1)]")
    assert seen.api_calls == ("GorillaFileSystem.pwd", "GorillaFileSystem.cd", "GorillaFileSystem.ls")
    assert seen.failed_api_calls == ("GorillaFileSystem.cd", "GorillaFileSystem.ls")
    assert seen.failed and not seen.done and not episode.step("[pwd()]").failed
    turn = episode.step("That is all.")
    assert (turn.code_blocks, turn.done, turn.failed, turn.api_calls) == (0, False, False, ())
    assert "grep" in turn.text
    episode.close()
    assert play(world, task.task_id, world.demonstration(task.task_id)).verdict.passed == (SOLVED,)
