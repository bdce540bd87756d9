"""The recipe of embedded policies in miniature, and the behaviour that it teaches."""

import inspect
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from tasks.core.config.params import ParamsError
from tasks.core.config.policy import PolicyConfig
from tasks.core.interfaces.world_kind import VARIANTS, find_world
from tasks.core.policies.architecture import TinyQwen2, build_tokenizer
from tasks.core.policies.base_model import fetch_base_model
from tasks.core.policies.checkpoint_files import DIGESTS
from tasks.core.policies.recipe import Recipe, save
from tasks.core.text_games import demonstrations as games
from tasks.core.text_games.demonstrations import Teacher, demonstrations, grid_rows, phrases
from tasks.core.worlds.webshop.authoring import draw_catalogue
from tasks.core.worlds.webshop.kind import WebShopConfig

LITTLE = {
    "sizes": TinyQwen2(layers=1, width=64, heads=1, feed_forward=64),
    "perfect_demonstrations": 4,
    "perfect_steps": 2,
    "imperfect_demonstrations": 4,
    "imperfect_steps": 1,
}


def recipe_of(world: str) -> Any:
    """Return the world's recipe; a game's has a teacher."""
    recipe = find_world(world).recipe
    assert recipe is not None
    return recipe.load()


@pytest.mark.parametrize("world", ["bandit", "frozen_lake", "pocketworld", "sokoban", "webshop"])
def test_the_same_recipe_makes_the_same_bytes(world: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    made = []
    for name, seed in (("one", 0), ("again", 0), ("other", 1)):
        recipe = recipe_of(world).model_copy(update={**LITTLE, "seed": seed})
        model, tokenizer = recipe.make()
        save(model, tokenizer, tmp_path / name)
        made.append((tmp_path / name / DIGESTS).read_text())
    assert made[0] == made[1] != made[2]


@pytest.mark.parametrize("world", ["pocketworld", "sokoban"])
def test_a_variant_leaves_out_flaws_or_failures(world: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of forty flawed demonstrations some solve their task; imitation alone has none, and no phase for them."""
    seen: list[tuple[int, int]] = []

    def counted(recipe: Recipe, _: object, perfect: Iterable[object], imperfect: Iterable[object]) -> tuple[None, None]:
        seen.append((len(list(perfect)), len(list(imperfect))))
        return None, None

    recipe = recipe_of(world).model_copy(update={**LITTLE, "imperfect_demonstrations": 40})
    monkeypatch.setattr(inspect.getmodule(type(recipe)) if world == "pocketworld" else games, "train_policy", counted)
    for variant in VARIANTS:
        recipe.variant(variant).make()
    assert seen[:2] == [(4, 40), (4, 0)] and seen[2][0] == 4 and 0 < seen[2][1] < 40
    assert recipe.variant("imitation").imperfect_steps == 0


def test_an_unknown_variant_is_refused_with_those_that_exist(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"recipes are recipe, recipe:imitation, recipe:successes$"):
        fetch_base_model(PolicyConfig(source="recipe:clean"), "pocketworld", tmp_path, tmp_path / "base")


@pytest.mark.parametrize(("world", "solved"), [("frozen_lake", 6), ("sokoban", 30), ("webshop", 12)])
def test_advice_solves_tasks(world: str, solved: int) -> None:
    """Count the solved tasks of 30. Slippery ice depends on luck; in the shop the search may not reach a product."""
    teacher = recipe_of(world).teacher()
    assert sum(_solves(teacher, number) for number in range(30)) >= solved


def _solves(teacher: Teacher, seed: int) -> bool:
    task = teacher.task(Random(seed))
    game = teacher.kind.start(task, seed)
    for _ in range(teacher.turns.max_actions):
        advice = [] if game.over else teacher.advice(task, game.state)
        assert all(game.understood(action) for action in advice[:1])
        if advice:
            game.play(game.understood(advice[0]))
    return bool(game.solved)


def test_a_row_of_a_map_is_one_token() -> None:
    teacher = recipe_of("sokoban").teacher()
    shown = list(demonstrations(teacher, 0, 5, imperfect=False))
    rows = grid_rows(shown)
    assert "######\n" in rows and all(len(row) == 7 for row in rows)
    tokenizer = build_tokenizer([*phrases(teacher), *rows], 512)
    state = shown[0][1]["content"].partition("State:\n")[2].partition("You have ")[0]
    assert [tokenizer.decode([token]) for token in tokenizer.encode(state)] == state.splitlines(keepends=True)


def test_pages_are_no_maps() -> None:
    assert not grid_rows(demonstrations(recipe_of("webshop").teacher(), 0, 3, imperfect=False))


def test_an_asin_is_one_token() -> None:
    tokenizer = build_tokenizer(phrases(recipe_of("webshop").teacher()), 512)
    asins = [product.asin for product in draw_catalogue(WebShopConfig(), 2502)]
    assert all(len(tokenizer.encode(spelt)) == 1 for asin in asins for spelt in (asin, asin.lower()))
