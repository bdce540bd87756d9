"""Demonstrations: whoever looks first solves every task, and bad habits do not."""

import random

import pytest

from tasks.core.worlds.tau2.demonstrations.playing import IMPERFECT, PERFECT, Demonstrator, Habits, demonstrated_tasks
from tasks.core.worlds.tau2.recipe import pieces
from tasks.core.worlds.tau2.tasks import Tau2Task, faults
from tasks.core.worlds.tau2.world import Tau2World


def solved(world: Tau2World, tasks: list[Tau2Task], habits: Habits) -> float:
    """Percent of the tasks that a demonstrator with these habits solves."""
    found = []
    for task in tasks:
        episode = world.open(task.task_id, 0)
        Demonstrator(episode, task.instruction, habits, random.Random(task.task_id)).play()
        found.append(episode.evaluate().success)
        episode.close()
    return 100 * sum(found) / len(found)


@pytest.mark.tau2
def test_whoever_looks_first_solves_the_official_test(world: Tau2World) -> None:
    assert solved(world, list(world.tasks("test_normal")), PERFECT) == 100  # type: ignore[arg-type]


@pytest.mark.tau2
def test_looking_first_solves_tasks_of_every_kind_and_habits_spoil_most(world: Tau2World) -> None:
    tasks = random.Random(1).sample(list(world.tasks("train")), 60)
    assert solved(world, tasks, PERFECT) == 100  # type: ignore[arg-type]
    assert 3 <= solved(world, tasks, IMPERFECT) <= 45  # type: ignore[arg-type]


@pytest.mark.tau2
def test_nothing_that_is_held_back_is_demonstrated(world: Tau2World) -> None:
    held = {faults(task.task_id) for split in ("dev", "test_normal", "test_challenge") for task in world.tasks(split)}
    shown = demonstrated_tasks(world)
    assert not held & {faults(task.task_id) for task in shown}
    assert max(task.difficulty for task in shown) == 2 and len(shown) > 1000


def test_inseparable_parts_are_one_piece_and_turns_are_whole() -> None:
    def conversation(answer: str) -> list[dict[str, str]]:
        return [{"role": "user", "content": answer}, {"role": "assistant", "content": "```json\n{}\n```"}]

    found = pieces([conversation(f"Mode: {mode}\nWi-Fi: ON, always.") for mode in ("ON", "OFF")])  # type: ignore[misc]
    assert {"Mode: ", "ON\n", "OFF\n", "Wi-Fi: ON, always.", "```json\n{}\n```"} <= set(found)
    assert "Wi-Fi: " not in found
