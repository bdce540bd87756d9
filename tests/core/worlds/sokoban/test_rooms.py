"""Rules and search of Sokoban, by hand and against each other."""

from random import Random

import pytest

from tasks.core.worlds.sokoban.kind import SokobanConfig
from tasks.core.worlds.sokoban.rooms import moves_to_go, orientations, read_room, shortest_solution
from tasks.core.worlds.sokoban.world import LARGE, SMALL, draw_room, draw_tasks

CORRIDOR = "######\n#PX_O#\n######"
CORNERED = "#####\n#XP_#\n#__O#\n#####"


def test_a_corridor_takes_as_many_pushes_as_it_is_long() -> None:
    room, start = read_room(CORRIDOR)
    assert shortest_solution(room, start, 10) == "RR"
    assert shortest_solution(room, start, 1) is None
    assert moves_to_go(room, 10)[start] == 2
    assert room.text(start) == CORRIDOR


def test_a_box_in_a_corner_cannot_be_brought_out() -> None:
    room, start = read_room(CORNERED)
    assert shortest_solution(room, start, 50) is None
    assert start not in moves_to_go(room, 50)


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_reverse_play_and_forward_search_agree_on_every_position(size: tuple[int, int]) -> None:
    config = SokobanConfig(max_actions=6)
    room, _ = read_room(draw_room(Random(1), *size, config))
    distances = moves_to_go(room, 6)
    assert len(distances) > 30
    for position, moves in Random(0).sample(sorted(distances.items(), key=str), 30):
        found = shortest_solution(room, position, 6)
        assert found is not None and len(found) == moves


def test_drawn_rooms_can_be_solved_and_are_never_the_same() -> None:
    config = SokobanConfig()
    tasks = draw_tasks(config, seed=5)
    drawn = [task for part in tasks.values() for task in part]
    assert all(2 <= len(task.solution) <= config.max_actions for task in drawn)
    by_room: dict[str, set[str]] = {}
    for task in drawn:
        by_room.setdefault(min(orientations(task.room)), set()).add(task.scenario_id)
    assert all(len(scenarios) == 1 for scenarios in by_room.values())
    assert {len(read_room(task.room)[1][1]) for task in tasks["test_challenge"] if task.difficulty == 3} == {2}
    assert draw_tasks(config, seed=5) == tasks
    assert draw_tasks(config, seed=6) != tasks


def test_a_room_has_eight_orientations() -> None:
    turned = orientations(CORNERED)
    assert len(turned) == 8 and CORNERED in turned
    assert all(sorted(room.replace("\n", "")) == sorted(CORNERED.replace("\n", "")) for room in turned)
