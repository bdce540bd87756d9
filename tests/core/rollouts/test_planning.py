from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.core.interfaces.world import Task
from tasks.core.rollouts.planning import deal_tasks, draw_tasks, plan_rollouts
from tasks.core.seeding import derive_seed

TASKS = [Task(f"t{index}", f"s{index // 3}", 1 + (index >= 9), "train", "") for index in range(12)]
WEIGHTS = [0.5 / 9] * 9 + [0.5 / 3] * 3
"""Nine tasks of difficulty 1 and three of difficulty 2, each difficulty as likely as the other."""


def test_one_draw_takes_both_difficulties_equally_often() -> None:
    drawn = Counter(draw_tasks(TASKS, WEIGHTS, 1, seed)[0].difficulty for seed in range(2000))
    assert drawn[1] / 2000 == pytest.approx(0.5, abs=0.03)


@given(count=st.integers(1, 40), seed=st.integers(0, 2**63 - 1))
def test_no_task_is_drawn_twice_while_there_are_enough(count: int, seed: int) -> None:
    drawn = Counter(task.task_id for task in draw_tasks(TASKS, WEIGHTS, count, seed))
    assert drawn.total() == count
    assert max(drawn.values()) - min(drawn[task.task_id] for task in TASKS) <= 1


def test_a_task_without_weight_is_not_drawn() -> None:
    drawn = draw_tasks(TASKS, [1.0, 0.0, 1.0] + [0.0] * 9, 2, seed=0)
    assert {task.task_id for task in drawn} == {"t0", "t2"}
    with pytest.raises(ValueError, match="weight above 0"):
        draw_tasks(TASKS, [0.0] * 12, 2, seed=0)


def test_the_seed_decides_the_draw() -> None:
    assert draw_tasks(TASKS, WEIGHTS, 6, 1) == draw_tasks(TASKS, WEIGHTS, 6, 1)
    assert draw_tasks(TASKS, WEIGHTS, 6, 1) != draw_tasks(TASKS, WEIGHTS, 6, 2)


def test_a_rollouts_seed_depends_on_its_task_and_index_alone() -> None:
    alone = plan_rollouts(TASKS[1:2], 2, seed=7)
    among = [planned for planned in plan_rollouts(TASKS, 3, seed=7) if planned.task.task_id == "t1"]
    assert alone == among[:2]
    assert [planned.seed for planned in alone] == [derive_seed(7, "t1", 0), derive_seed(7, "t1", 1)]


def test_a_task_given_twice_gets_twice_as_many_rollouts() -> None:
    planned = plan_rollouts([TASKS[0], TASKS[1], TASKS[0]], 2, seed=7)
    assert sorted(one.name for one in planned) == ["t0#0", "t0#1", "t0#2", "t0#3", "t1#0", "t1#1"]


def test_dealt_tasks_are_one_sequence_however_it_is_cut() -> None:
    whole = deal_tasks(TASKS, WEIGHTS, 60, seed=5, dealt=0)
    parts = [deal_tasks(TASKS, WEIGHTS, 20, seed=5, dealt=dealt) for dealt in (0, 20, 40)]
    assert whole == [task for part in parts for task in part]
    assert whole != deal_tasks(TASKS, WEIGHTS, 60, seed=6, dealt=0)


@given(seed=st.integers(0, 2**63 - 1), count=st.integers(1, 80))
def test_no_task_of_a_difficulty_comes_again_before_all_of_it_came(seed: int, count: int) -> None:
    dealt = Counter(task.task_id for task in deal_tasks(TASKS, WEIGHTS, count, seed, dealt=0))
    for level in (1, 2):
        times = [dealt[task.task_id] for task in TASKS if task.difficulty == level]
        assert max(times) - min(times) <= 1


def test_each_dealt_task_has_its_difficulty_drawn_evenly() -> None:
    dealt = Counter(task.difficulty for task in deal_tasks(TASKS, WEIGHTS, 4000, seed=0, dealt=0))
    assert dealt[1] / 4000 == pytest.approx(0.5, abs=0.03)
    assert {task.task_id for task in deal_tasks(TASKS, [0.0] * 11 + [1.0], 3, seed=0, dealt=0)} == {"t11"}
    with pytest.raises(ValueError, match="weight above 0"):
        deal_tasks(TASKS, [0.0] * 12, 2, seed=0, dealt=0)


def test_a_tasks_rollouts_take_the_temperatures_in_turn() -> None:
    planned = plan_rollouts(TASKS[:1], 5, seed=0, temperatures=(0.1, 0.5))
    assert [rollout.temperature for rollout in planned] == [0.1, 0.5, 0.1, 0.5, 0.1]
    assert [rollout.seed for rollout in planned] == [rollout.seed for rollout in plan_rollouts(TASKS[:1], 5, seed=0)]
