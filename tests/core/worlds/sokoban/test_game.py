"""Rewards of gym-sokoban by hand, and the game against the search's own moves."""

from random import Random

import pytest

from tasks.core.worlds.sokoban.kind import SokobanConfig
from tasks.core.worlds.sokoban.rooms import LETTERS, moves_to_go, orientations, read_room, shortest_solution
from tasks.core.worlds.sokoban.teacher import SokobanTeacher
from tasks.core.worlds.sokoban.world import (
    ACTIONS,
    LARGE,
    SMALL,
    Sokoban,
    SokobanKind,
    SokobanTask,
    draw_room,
    draw_tasks,
)


def task_of(room: str, solution: str, **changes: str) -> SokobanTask:
    return SokobanTask(task_id="a", scenario_id="a", difficulty=1, split="dev", room=room, solution=solution, **changes)


def test_moves_pushes_and_the_end_are_paid() -> None:
    game = Sokoban(task_of("#######\n#P_XO_#\n#__X_O#\n#######", "RRLDRR"))
    assert game.play("Right") == pytest.approx(-0.1)
    assert game.play("Right") == pytest.approx(0.9)
    assert game.play("Right") == pytest.approx(-1.1), "the box leaves its target"
    assert game.play("Up") == pytest.approx(-0.1), "a wall"
    assert not game.over


def test_the_last_box_ends_the_game() -> None:
    game = Sokoban(task_of("#####\n#PXO#\n#####", "R"))
    assert game.play("Right") == pytest.approx(10.9)
    assert game.over and game.solved
    assert game.state == "#####\n#_P√#\n#####"


def test_the_player_on_a_target_is_shown() -> None:
    game = Sokoban(task_of("#######\n#OP_X_#\n#_____#\n#######", "DRRRULLL"))
    game.play("Left")
    assert game.state.startswith("#######\n#S__X_#")
    game.play("Right")
    assert game.state.startswith("#######\n#OP_X_#")


def test_new_symbols_and_names_are_the_same_game() -> None:
    room = "#####\n#PXO#\n#####"
    game = Sokoban(task_of(room, "R", symbols="new", actions="new"))
    assert game.state == "WWWWW\nWABGW\nWWWWW"
    assert game.understood("right") is None
    assert game.play(game.understood("EAST") or "") == pytest.approx(10.9)
    assert game.state == "WWWWW\nW.ACW\nWWWWW"
    told = SokobanKind(SokobanConfig()).briefing(task_of(room, "R", symbols="new", actions="new"))
    assert dict(told.symbols)["@"] == "player on target"
    assert told.actions == ("North", "South", "West", "East")


def test_the_game_moves_as_the_search_does() -> None:
    random = Random(3)
    for _ in range(20):
        text = draw_room(random, *LARGE, SokobanConfig())
        room, position = read_room(text)
        game = Sokoban(task_of(text, shortest_solution(room, position, 10) or ""))
        for _ in range(30):
            number = random.randrange(4)
            game.play(ACTIONS["usual"][number])
            position = room.after(position, room.steps[LETTERS[number]]) or position
            assert game.state == room.text(position)
            if game.over:
                break


PLACES = "I am at 1,2, the box at 2,2, the target at 4,2. "


@pytest.mark.parametrize(
    "room, places, push",
    [
        ("#####\n#_P_#\n#_X_#\n#___#\n#_O_#\n#####", PLACES, "Push Down from 1,2. "),
        ("#####\n#___#\n#_X_#\n#_P_#\n#_O_#\n#####", PLACES.replace("1,2", "3,2"), "Push Down from 1,2. "),
        ("#####\n#P__#\n##X_#\n#___#\n#_O_#\n#####", PLACES.replace("1,2", "1,1"), "Push Down from 1,2. "),
        ("#####\n#XP_#\n#___#\n#___#\n#_O_#\n#####", PLACES.replace("2,2", "1,1"), ""),
    ],
)
def test_it_reads_the_places_and_says_the_next_push_where_one_helps(room: str, places: str, push: str) -> None:
    task = task_of("#####\n#PXO#\n#####", "R").model_copy(update={"room": room})
    assert SokobanTeacher().reading(task, room) == places + push


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


def test_a_room_has_eight_orientations() -> None:
    turned = orientations(CORNERED)
    assert len(turned) == 8 and CORNERED in turned
    assert all(sorted(room.replace("\n", "")) == sorted(CORNERED.replace("\n", "")) for room in turned)
