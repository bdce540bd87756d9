"""Places of a map in a thought."""

import pytest

from tasks.core.interfaces.world_kind import find_world
from tasks.core.policies.architecture import build_tokenizer
from tasks.core.text_games.demonstrations import demonstrations, phrases, places_text


def test_a_place_is_row_and_column_from_the_upper_left() -> None:
    assert places_text("#_P\nO__\n__X", {"I am": "PS", "the box": "X√", "the target": "O√S"}) == (
        "I am at 0,2, the box at 2,2, the target at 1,0. "
    )
    assert places_text("#_S", {"I am": "PS", "the target": "O√S"}) == "I am at 0,2, the target at 0,2. "
    with pytest.raises(ValueError, match="without any of G"):
        places_text("#_P", {"the goal": "G"})


@pytest.mark.parametrize("world, named", [("sokoban", 4), ("frozen_lake", 2)])
def test_a_thought_names_the_places_in_one_token_each_and_a_plain_answer_none(world: str, named: int) -> None:
    recipe = find_world(world).recipe
    assert recipe is not None
    teacher = recipe.load().teacher()
    tokenizer = build_tokenizer(phrases(teacher), 512)
    thinking, plain = (talk[2]["content"] for talk in demonstrations(teacher, 0, 2, imperfect=False))
    tokens = [tokenizer.decode([token]) for token in tokenizer.encode(thinking)]
    assert sum(token[0].isdigit() and token[1:2] == "," for token in tokens) == named
    assert thinking.startswith("<think>I am at ") and " at " not in plain
