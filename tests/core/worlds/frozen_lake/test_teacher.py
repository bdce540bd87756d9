"""A careful player of slippery ice."""

from tasks.core.worlds.frozen_lake.kind import FrozenLakeConfig
from tasks.core.worlds.frozen_lake.teacher import FrozenLakeTeacher, careful_plans
from tasks.core.worlds.frozen_lake.world import FrozenLakeKind, FrozenLakeTask


def plans(*rows: str, slippery: bool = True) -> list[tuple[str, ...]]:
    return careful_plans(FrozenLakeKind(FrozenLakeConfig(slippery=slippery)).transitions(rows), "".join(rows))


def test_without_slips_it_goes_straight() -> None:
    assert plans("SFG", slippery=False)[0] == ("Right", "Right")
    assert plans("SFH", "FFG", slippery=False)[1] == ("Down", "Right")


def test_beside_a_hole_it_walks_where_no_slip_leads_into_it() -> None:
    """From S, Right and Up lead to the goal alike, one time in three; Right one time in three into the hole."""
    assert plans("FSG", "FHF")[1][0] == "Up"


def test_it_is_told_from_the_place_of_the_player_on_the_map_that_is_shown() -> None:
    task = FrozenLakeTask(task_id="d", scenario_id="d", difficulty=1, split="train", map=("FSG", "FHF"))
    teacher = FrozenLakeTeacher()
    assert teacher.advice(task, "_PG\n_O_") == plans("FSG", "FHF")[1]
    assert teacher.advice(task, "__G\nPO_") == plans("FSG", "FHF")[3]
    assert teacher.reading(task, "__G\nPO_") == "I am at 1,0, the goal at 0,2. "
