"""FrozenLake: the ice slips as gymnasium's does, maps can be solved, the text shows where one stands."""

from collections import Counter

import pytest
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

from tasks.core.text_games.settings import GameCounts
from tasks.core.worlds.frozen_lake.kind import FrozenLakeConfig
from tasks.core.worlds.frozen_lake.teacher import FrozenLakeTeacher, careful_plans
from tasks.core.worlds.frozen_lake.world import MOVES, FrozenLakeKind, FrozenLakeTask, draw_tasks, shortest_way

MAP = ("SFF", "FHF", "FFG")


def task_of(rows: tuple[str, ...], **changes: object) -> FrozenLakeTask:
    return FrozenLakeTask(task_id="a", scenario_id="a", difficulty=1, split="dev", map=rows, **changes)  # type: ignore[arg-type]


def test_the_same_seed_walks_as_gymnasium_walks() -> None:
    kind = FrozenLakeKind(FrozenLakeConfig())
    for seed in range(50):
        ours, theirs = kind.start(task_of(MAP), seed), FrozenLakeEnv(desc=list(MAP), is_slippery=True)
        theirs.reset(seed=seed)
        for step in range(20):
            action = (seed + step) % 4
            reward = ours.play(list(MOVES)[action])
            place, their_reward, over, _, _ = theirs.step(action)
            shown = ours.state.replace("\n", "")
            assert (reward, ours.over) == (their_reward, over)
            assert shown[place] in "PX√"
            if over:
                assert ours.solved == (their_reward == 1)
                break


def test_a_third_of_the_steps_goes_where_it_was_meant_to() -> None:
    kind = FrozenLakeKind(FrozenLakeConfig())
    reached: Counter[str] = Counter()
    for seed in range(3000):
        game = kind.start(task_of(("FFF", "FSF", "FFG")), seed)
        game.play("Left")
        reached[game.state] += 1
    assert sorted(reached.values()) == pytest.approx([1000] * 3, rel=0.1)


def test_firm_ice_leads_along_the_shortest_way() -> None:
    kind = FrozenLakeKind(FrozenLakeConfig(slippery=False))
    game = kind.start(task_of(MAP), 0)
    assert shortest_way(MAP) == ("Down", "Down", "Right", "Right")
    assert [game.play(step) for step in kind.solution(task_of(MAP))] == [0, 0, 0, 1]
    assert game.solved
    assert game.state == "___\n_O_\n__√"


def test_a_hole_ends_the_walk() -> None:
    kind = FrozenLakeKind(FrozenLakeConfig(slippery=False))
    game = kind.start(task_of(MAP, new_symbols=True), 0)
    assert game.state == "A..\n.#.\n..*"
    game.play("Right")
    assert game.play("Down") == 0
    assert (game.over, game.solved, game.state) == (True, False, "...\n.@.\n..*")


def test_luck_decides_on_slippery_ice_alone() -> None:
    found = [FrozenLakeKind(FrozenLakeConfig(slippery=slippery)).rules.of_chance for slippery in (True, False)]
    assert found == [True, False]


def test_maps_are_distinct_and_within_reach() -> None:
    config = FrozenLakeConfig(max_actions=5)
    tasks = [task for part in draw_tasks(config, seed=1).values() for task in part]
    assert len({task.map for task in tasks}) == len(tasks)
    assert {len(shortest_way(task.map)) for task in tasks} == {1, 2, 3, 4, 5}
    assert {len(task.map) for task in tasks if task.new_symbols} == {5}


def test_too_few_maps_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"size 2 has too few different maps for 192 tasks of train"):
        draw_tasks(FrozenLakeConfig(size=2, counts=GameCounts()), seed=1)


def plans(*rows: str, slippery: bool = True) -> list[tuple[str, ...]]:
    return careful_plans(FrozenLakeKind(FrozenLakeConfig(slippery=slippery)).transitions(rows), "".join(rows))


def test_without_slips_it_goes_straight() -> None:
    assert plans("SFG", slippery=False)[0] == ("Right", "Right")
    assert plans("SFH", "FFG", slippery=False)[1] == ("Down", "Right")


def test_beside_a_hole_it_walks_where_no_slip_leads_into_it() -> None:
    """From S, Right and Up lead to the goal alike, one time in three; Right one time in three into the hole."""
    assert plans("FSG", "FHF")[1][0] == "Up"


def test_it_is_told_from_the_place_of_the_player_on_the_map_that_is_shown() -> None:
    task, teacher = task_of(("FSG", "FHF")), FrozenLakeTeacher()
    assert teacher.advice(task, "_PG\n_O_") == plans("FSG", "FHF")[1]
    assert teacher.advice(task, "__G\nPO_") == plans("FSG", "FHF")[3]
    assert teacher.reading(task, "__G\nPO_") == "I am at 1,0, the goal at 0,2. "
