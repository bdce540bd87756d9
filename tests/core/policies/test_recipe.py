"""The recipe of embedded policies in miniature, and the behaviour that it teaches."""

import inspect
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, Qwen2ForCausalLM, Qwen2Tokenizer

from tasks.core.config.params import ParamsError
from tasks.core.config.policy import PolicyConfig
from tasks.core.interfaces.world_kind import VARIANTS, find_world
from tasks.core.policies.architecture import COPY_SCALE, TinyQwen2, _byte_symbols, build_tokenizer, new_model
from tasks.core.policies.base_model import fetch_base_model
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.checkpoint_files import DIGESTS
from tasks.core.policies.loading import load_tokenizer
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


def make_model(seed: int) -> Qwen2ForCausalLM:
    return new_model(TinyQwen2(), vocabulary=300, eos_token_id=2, pad_token_id=0, seed=seed)


def test_attention_starts_as_a_scaled_copy() -> None:
    for layer in make_model(0).model.layers:
        written = layer.self_attn.o_proj.weight @ layer.self_attn.v_proj.weight
        torch.testing.assert_close(written, COPY_SCALE * torch.eye(128), atol=1e-5, rtol=0)


def test_weights_come_from_the_seed_alone() -> None:
    torch.manual_seed(1)
    first = make_model(7)
    torch.manual_seed(2)
    second, other = make_model(7), make_model(8)
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    assert all(torch.equal(left, right) for left, right in pairs)
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)


def test_a_saved_model_loads_as_a_causal_lm(tmp_path: Path) -> None:
    model = make_model(0)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    ids = torch.arange(12)[None]
    torch.testing.assert_close(loaded(ids).logits, model(ids).logits)
    assert loaded.config.hidden_size // loaded.config.num_attention_heads == 64


def test_an_induction_circuit_copies_pairs_before_any_training() -> None:
    sizes = TinyQwen2(layers=3, rope_theta=1e6, induction=True)
    model = new_model(sizes, vocabulary=600, eos_token_id=2, pad_token_id=0, seed=0)
    right = total = 0
    for seed in range(20):
        pairs = torch.randperm(500, generator=torch.Generator().manual_seed(seed))[:24].view(12, 2) + 50
        again = pairs[torch.randperm(12, generator=torch.Generator().manual_seed(100 + seed))]
        ids = torch.cat([pairs.flatten(), again.flatten()])
        predicted = model(ids[None]).logits[0].argmax(-1)
        right += int((predicted[24::2] == again[:, 1]).sum())
        total += len(again)
    assert right / total > 0.6
    assert model.config.rope_parameters["rope_theta"] == 1e6


@pytest.mark.parametrize("sizes", [{"layers": 1}, {"width": 64, "heads": 1}, {"heads": 1}])
def test_an_induction_circuit_needs_two_layers_of_two_heads_of_64(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="two heads of 64"):
        new_model(TinyQwen2(**sizes, induction=True), vocabulary=300, eos_token_id=2, pad_token_id=0, seed=0)


WORDS = ("Anna", "Moore", "pay", "name", "phone_number", "print", "7", "42", "(", ")", '"', "=", " ", "\n")
PHRASES = ("print(", ", ", "    ")
PARTS = (*WORDS, *PHRASES, "annA", "1234", "é", "日本", "\r\n", "\t", "\x00", "  ", "<|im_end|>", "Ġ", "👍🏽")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Qwen2Tokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    built = build_tokenizer((*WORDS, *PHRASES), 512)
    built.save_pretrained(folder)
    new_model(TinyQwen2(), len(built), built.eos_token_id, built.pad_token_id, seed=0).save_pretrained(folder)
    return load_tokenizer(folder)  # with a Qwen2 model, since AutoTokenizer's class depends on its config


def pieces(tokenizer: Qwen2Tokenizer, text: str) -> list[str]:
    return [tokenizer.decode([token]) for token in tokenizer.encode(text)]


@settings(max_examples=300)
@given(st.one_of(st.text(st.characters(exclude_categories=["Cs"])), st.lists(st.sampled_from(PARTS)).map("".join)))
def test_every_text_comes_back_exactly(tokenizer: Qwen2Tokenizer, text: str) -> None:
    text = unicodedata.normalize("NFC", text)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Anna Moore", ["Anna", " ", "Moore"]),
        ('name="Anna"', ["name", "=", '"', "Anna", '"']),
        ("print(phone_number, 42)", ["print(", "phone_number", ", ", "42", ")"]),
        ("wary", list("wary")),
        ("427", ["42", "7"]),
    ],
)
def test_words_numbers_and_phrases_are_single_tokens(tokenizer: Qwen2Tokenizer, text: str, expected: list[str]) -> None:
    assert pieces(tokenizer, text) == expected


def test_byte_symbols_are_the_byte_level_alphabet() -> None:
    assert sorted(_byte_symbols()) == sorted(pre_tokenizers.ByteLevel.alphabet())


def test_the_chat_template_serves_the_agent_loop(tokenizer: Qwen2Tokenizer) -> None:
    chat = ChatFormat(tokenizer)
    assert (
        chat.render([{"role": "user", "content": "pay"}]) == "<|im_start|>user\npay<|im_end|>\n<|im_start|>assistant\n"
    )
    assert [tokenizer.decode([stop]) for stop in chat.stop_ids] == ["<|im_end|>", "<|im_start|>"]


def test_the_same_words_give_the_same_bytes(tmp_path: Path) -> None:
    for name, words in (("a", WORDS), ("b", WORDS[::-1])):
        build_tokenizer(words, 512).save_pretrained(tmp_path / name)
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()
