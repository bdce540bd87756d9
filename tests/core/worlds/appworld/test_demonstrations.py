"""Demonstrations in the real engine: perfect play solves, bad habits fail, and no word of dev or the tests is shown."""

from itertools import islice
from pathlib import Path
from random import Random

import pytest
import torch

from tasks.core.policies.appworld_recipe import AppWorldRecipe, policy_of
from tasks.core.policies.architecture import TinyQwen2
from tasks.core.policies.tokenizer import build_tokenizer
from tasks.core.worlds.appworld.demonstrations.drills import drills
from tasks.core.worlds.appworld.demonstrations.playing import Demonstration, play_demonstrations
from tasks.core.worlds.appworld.demonstrations.vocabulary import COPIED, pieces, renamed, used_words
from tasks.core.worlds.appworld.inside.authoring import words

OPENING = 12
RESERVED = {
    word for listed in words.OPEN_LISTS.values() for share in ("dev", "tests") for word in words.pool(listed, share)
} - {"list"}  # a file of dev may be called so, but it is a word of thoughts too


@pytest.fixture(scope="module")
def demonstrations(appworld_root: Path) -> list[Demonstration]:
    return list(play_demonstrations(appworld_root, perfect=1, imperfect=2, tasks=6))


@pytest.mark.appworld
def test_perfect_play_solves_and_habits_fail(demonstrations: list[Demonstration]) -> None:
    assert len(demonstrations) == 18
    assert all(one.success for one in demonstrations if not one.imperfect)
    assert not all(one.success for one in demonstrations if one.imperfect)
    assert all("show_api_doc" in one.messages[OPENING]["content"] for one in demonstrations if not one.imperfect)


@pytest.mark.appworld
def test_demonstrations_are_the_same_whatever_the_workers(
    demonstrations: list[Demonstration], appworld_root: Path
) -> None:
    again = play_demonstrations(appworld_root, perfect=1, imperfect=2, workers=1, tasks=2)
    assert list(again) == demonstrations[:6]


@pytest.mark.appworld
def test_demonstrations_hold_no_reserved_word_but_drills_do(demonstrations: list[Demonstration]) -> None:
    conversations = [one.messages[OPENING - 1 :] for one in demonstrations]
    copies = [renamed(one.messages, OPENING, Random(0))[OPENING - 1 :] for one in demonstrations]
    assert len(used_words([*conversations, *copies])) > 50
    assert used_words([*conversations, *copies]) & RESERVED == set()
    exercises = list(drills(demonstrations[0].messages[:OPENING], 3000, seed=0))
    assert used_words(one[OPENING - 1 :] for one in exercises) >= RESERVED


@pytest.mark.appworld
def test_a_renamed_episode_has_other_words_in_the_same_places(demonstrations: list[Demonstration]) -> None:
    episode = demonstrations[0].messages
    copy = renamed(episode, OPENING, Random(1))
    assert copy[: OPENING - 1] == episode[: OPENING - 1] and copy != episode
    assert [message["role"] for message in copy] == [message["role"] for message in episode]
    assert renamed(episode, OPENING, Random(1)) == copy


@pytest.mark.appworld
def test_the_same_demonstrations_make_the_same_policy(demonstrations: list[Demonstration]) -> None:
    recipe = AppWorldRecipe(
        sizes=TinyQwen2(layers=1, width=64), perfect_steps=1, imperfect_steps=1, rounds=2, copies=2, drills=20
    )
    (one, words_of_one), (other, _) = (policy_of(recipe, demonstrations) for _ in range(2))
    assert len(words_of_one) > 1000
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.appworld
def test_what_is_copied_is_one_token_and_texts_return(demonstrations: list[Demonstration]) -> None:
    conversations = [one.messages for one in demonstrations]
    tokenizer = build_tokenizer(pieces(conversations, OPENING, merges=100, least=5), 2048)
    assert all(len(tokenizer.encode(word)) == 1 for word in [*COPIED, "alarm_id", "is_enabled", "07", "99"])
    for message in islice(conversations[0], OPENING - 1, None):
        assert tokenizer.decode(tokenizer.encode(message["content"])) == message["content"]
    assert all(len(tokenizer.encode(message["content"])) == 1 for message in conversations[0][: OPENING - 1])
