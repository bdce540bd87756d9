"""Rewards of gym-sokoban by hand, and the game against the search's own moves."""

from random import Random

import pytest

from tasks.core.worlds.sokoban.kind import SokobanConfig
from tasks.core.worlds.sokoban.rooms import LETTERS, read_room, shortest_solution
from tasks.core.worlds.sokoban.world import ACTIONS, LARGE, Sokoban, SokobanKind, SokobanTask, draw_room


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
