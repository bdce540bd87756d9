"""Which variations are offered: splits, held-out types, whole scenarios. By hand, on official numbers, without Java."""

import pytest

from tasks.core.config.splits import SPLITS
from tasks.core.worlds.scienceworld.authoring import over_the_limit
from tasks.core.worlds.scienceworld.settings import ScienceCounts
from tasks.core.worlds.scienceworld.tasks import HELD_OUT, difficulty, draw_variations

KEPT = ("boil", "find-plant")
VARIATIONS = {
    "boil": {"train": range(14), "dev": range(14, 21), "test": range(21, 30)},
    "find-plant": {"train": range(150), "dev": range(150, 225), "test": range(225, 300)},
    "identify-life-stages-2": {"train": range(4), "dev": range(4, 6), "test": range(6, 10)},
}
COUNTS = ScienceCounts(train=30, dev=6, test_normal=6, test_challenge=3)


def test_splits_are_the_official_ones_and_types_are_held_out() -> None:
    drawn = draw_variations(VARIATIONS, COUNTS, 0)
    for split in SPLITS:
        assert len(set(drawn[split])) == getattr(COUNTS, split)
        official = "test" if split.startswith("test") else split
        assert all(number in VARIATIONS[name][official] for name, number in drawn[split])
        assert {name in HELD_OUT for name, _ in drawn[split]} == {split == "test_challenge"}


def test_a_scenario_is_three_consecutive_variations_of_a_type() -> None:
    for part in draw_variations(VARIATIONS, COUNTS, 0).values():
        for start in range(0, len(part), 3):
            (name, first), *others = part[start : start + 3]
            assert others == [(name, first + 1), (name, first + 2)]


def test_types_take_turns_until_one_has_no_scenario_left() -> None:
    train = draw_variations(VARIATIONS, COUNTS, 0)["train"]
    assert sum(name == "boil" for name, _ in train) == 12  # of its 14 variations four scenarios
    assert {name for name, _ in train[:6]} == set(KEPT)


def test_another_scenario_of_the_type_stands_in_for_one_that_is_not_solved() -> None:
    before = draw_variations(VARIATIONS, COUNTS, 0)
    unsolved = before["train"][1]
    after = draw_variations(VARIATIONS, COUNTS, 0, {unsolved})
    assert not {unsolved, before["train"][0], before["train"][2]} & set(after["train"])
    assert [name for name, _ in after["train"][:24]] == [name for name, _ in before["train"][:24]]
    others = {split: part for split, part in before.items() if split != "train"}
    assert {split: part for split, part in after.items() if split != "train"} == others


def test_what_is_not_solved_counts_when_too_many_tasks_are_asked_for() -> None:
    unsolved = draw_variations(VARIATIONS, COUNTS, 0)["test_challenge"][:1]
    with pytest.raises(ValueError, match="test_challenge: 3 is more than the 0 tasks"):
        draw_variations(VARIATIONS, COUNTS, 0, unsolved)


def test_more_tasks_than_there_are_is_said() -> None:
    counts = COUNTS.model_copy(update={"test_challenge": 6})
    with pytest.raises(ValueError, match="test_challenge: 6 is more than the 3 tasks"):
        draw_variations(VARIATIONS, counts, 0)


def test_another_seed_draws_others() -> None:
    assert draw_variations(VARIATIONS, COUNTS, 0) == draw_variations(VARIATIONS, COUNTS, 0)
    assert draw_variations(VARIATIONS, COUNTS, 0) != draw_variations(VARIATIONS, COUNTS, 1)


@pytest.mark.parametrize(("actions", "level"), [(1, 1), (15, 1), (16, 2), (50, 2), (51, 3)])
def test_difficulty_is_the_length_of_the_solution(actions: int, level: int) -> None:
    assert difficulty(["wait"] * actions) == level


def test_solutions_over_the_limit_of_moves_are_counted() -> None:
    assert over_the_limit([99, 100, 101, 250], 100).endswith(
        "all 4 tasks; 2 of them take more than 100 moves, and are cut off"
    )
    assert over_the_limit([99, 250], None) == "official solutions solve all 2 tasks"
