"""The profiles of RAGEN's worlds against the paper's settings."""

import pytest

from flows.params_file import params_of


@pytest.mark.parametrize("world, prompts", [("bandit", 8), ("frozen_lake", 32), ("sokoban", 16), ("webshop", 8)])
def test_training_and_scoring_are_of_the_papers_size(world: str, prompts: int) -> None:
    """8 prompts x 16 rollouts, but for maps, of which 8 an iteration teach too little in fewer than RAGEN's 200; 256
    fixed prompts at temperature 0.5, which are 258 in whole scenarios of three."""
    params = params_of(world)
    assert (params.collection.tasks_per_iteration, params.collection.rollouts_per_task) == (prompts, 16)
    counts, scoring = getattr(params.world, world).counts, params.scoring
    assert counts.test_normal == counts.test_challenge == 258
    assert (scoring.rollouts_per_task, scoring.scenarios, scoring.temperature) == (1, None, 0.5)
    assert (params.evaluation.temperature, params.tasks.max_difficulty) == (0.5, 3)


@pytest.mark.parametrize(
    ("world", "limits"),
    [("bandit", (1, 1, 1)), ("frozen_lake", (5, 5, 10)), ("sokoban", (5, 5, 10)), ("webshop", (9, 1, 9))],
)
def test_turns_and_actions_are_limited_as_in_the_paper(world: str, limits: tuple[int, int, int]) -> None:
    rules = getattr(params_of(world).world, world)
    assert (rules.max_turns, rules.max_actions_per_turn, rules.max_actions) == limits
    assert rules.thinking
