"""What a demonstrated thought says of a room."""

import pytest

from tasks.core.worlds.sokoban.teacher import SokobanTeacher
from tasks.core.worlds.sokoban.world import SokobanTask

PLACES = "I am at 1,2, the box at 2,2, the target at 4,2. "


def task(room: str) -> SokobanTask:
    return SokobanTask(
        task_id="d", scenario_id="d", difficulty=1, split="train", room="#####\n#PXO#\n#####", solution="R"
    ).model_copy(update={"room": room})


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
    assert SokobanTeacher().reading(task(room), room) == places + push
