"""Task filtering: the kept tasks, their weights, and refused input."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.core.config.collection import TaskFilterConfig
from tasks.core.interfaces.world import Task
from tasks.filter_tasks import FilterError, keep_tasks, refuse_unknown_ids, sampling_weights, summary


def scenario(name: str, difficulty: int) -> list[Task]:
    return [Task(f"{name}_{number}", name, difficulty, "train", "Do it.") for number in (1, 2, 3)]


def paper_proportions() -> list[Task]:
    """Return 35 train scenarios of 3 tasks, of which 24 have difficulty 1 or 2."""
    levels = [1] * 12 + [2] * 12 + [3] * 11
    return [task for number, level in enumerate(levels) for task in scenario(f"s{number}", level)]


def test_difficulty_three_is_dropped_at_the_papers_proportions() -> None:
    train = paper_proportions()
    kept = keep_tasks(train, TaskFilterConfig())
    assert [task for task in train if task.difficulty < 3] == kept
    expected = "kept 72 of 105 training tasks (24 of 35 scenarios): 36 of difficulty 1, 36 of difficulty 2"
    assert summary(train, kept, 2) == f"{expected}; tasks.max_difficulty: 2 leaves out 33 harder ones"
    assert summary(kept, kept, 2).endswith("36 of difficulty 2")


def test_the_denylist_is_applied() -> None:
    kept = keep_tasks(scenario("a", 1) + scenario("b", 2), TaskFilterConfig(denylist=("a_2", "b_1")))
    assert [task.task_id for task in kept] == ["a_1", "a_3", "b_2", "b_3"]


def test_an_unknown_denylisted_id_is_an_error_that_names_it() -> None:
    refuse_unknown_ids(["a_1"], ["a_1", "a_2"])
    with pytest.raises(FilterError, match=r"tasks\.denylist: the world has no task a_9, zz$"):
        refuse_unknown_ids(["zz", "a_1", "a_9"], ["a_1"])


def test_an_empty_training_set_names_the_parameters() -> None:
    with pytest.raises(FilterError, match=r"of 3: tasks\.max_difficulty = 2 and tasks\.denylist \(0 ids\)"):
        keep_tasks(scenario("a", 3), TaskFilterConfig())


def test_weights_by_hand() -> None:
    tasks = scenario("a", 1)[:1] + scenario("b", 2)[:2]
    assert sampling_weights(tasks, TaskFilterConfig()) == [0.5, 0.25, 0.25]
    assert sampling_weights(tasks, TaskFilterConfig(equal_difficulties=False)) == [1 / 3] * 3


@given(st.lists(st.integers(1, 3), min_size=1, max_size=60))
def test_difficulties_are_equally_likely_and_weights_sum_to_one(levels: list[int]) -> None:
    tasks = [Task(f"t{number}", "s", level, "train", "") for number, level in enumerate(levels)]
    weights = sampling_weights(tasks, TaskFilterConfig(max_difficulty=3))
    by_level: dict[int, float] = defaultdict(float)
    for task, weight in zip(tasks, weights, strict=True):
        by_level[task.difficulty] += weight
    assert sum(weights) == pytest.approx(1, abs=1e-12)
    assert list(by_level.values()) == pytest.approx([1 / len(by_level)] * len(by_level))
