"""The choice of a split's tasks to play."""

import pytest

from tasks.core.evaluation.playing import spread_scenarios
from tasks.core.interfaces.world import Task

TASKS = [Task(f"s{scenario}_{task}", f"s{scenario}", 1, "dev", "") for scenario in range(5) for task in range(3)]


@pytest.mark.parametrize(
    ("count", "scenarios"),
    [(1, [0]), (2, [0, 2]), (3, [0, 1, 3]), (5, [0, 1, 2, 3, 4]), (9, [0, 1, 2, 3, 4]), (None, [0, 1, 2, 3, 4])],
)
def test_some_scenarios_of_all_difficulties_are_played_whole(count: int | None, scenarios: list[int]) -> None:
    """A split lists its scenarios by difficulty: its first scenarios alone would be the easiest."""
    played = spread_scenarios(TASKS, count)
    assert [task.task_id for task in played] == [f"s{scenario}_{task}" for scenario in scenarios for task in range(3)]
    assert spread_scenarios([], count) == []
