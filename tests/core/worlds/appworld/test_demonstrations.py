"""Demonstrations in the real engine: perfect play solves, bad habits fail, and no word of dev or the tests is shown."""

from itertools import islice, pairwise
from pathlib import Path
from random import Random

import pytest
import torch

from tasks.core.policies.architecture import TinyQwen2, build_tokenizer
from tasks.core.worlds.appworld.demonstrations.drills import drill
from tasks.core.worlds.appworld.demonstrations.playing import Demonstration, play_demonstrations
from tasks.core.worlds.appworld.demonstrations.renaming import is_reserved, random_name, renamed, reserved_names
from tasks.core.worlds.appworld.demonstrations.vocabulary import COPIED, pieces
from tasks.core.worlds.appworld.inside.authoring import words
from tasks.core.worlds.appworld.recipe import AppWorldRecipe, policy_of

OPENING = 12


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
def test_neither_demonstrations_nor_drills_hold_a_reserved_name(demonstrations: list[Demonstration]) -> None:
    random = Random(0)
    copies = [renamed(one.messages, OPENING, random) for one in demonstrations for _ in range(20)]
    exercises = [drill(demonstrations[0].messages[:OPENING], random) for _ in range(1000)]
    for messages in [*(one.messages for one in demonstrations), *copies, *exercises]:
        assert reserved_names("\n".join(message["content"] for message in messages[OPENING - 1 :])) == set()


@pytest.mark.appworld
def test_a_renamed_episode_has_other_words_in_the_same_places(demonstrations: list[Demonstration]) -> None:
    episode = demonstrations[0].messages
    copy = renamed(episode, OPENING, Random(1))
    assert copy[: OPENING - 1] == episode[: OPENING - 1] and copy != episode
    assert [message["role"] for message in copy] == [message["role"] for message in episode]
    assert renamed(episode, OPENING, Random(1)) == copy


def test_reserved_names_are_found_and_never_drawn() -> None:
    names = words.PAIRED_NAMES["alarms"]
    shares = {
        share: next(
            pair for pair in ((f, s) for f in names.firsts for s in names.seconds) if names.share(*pair) == share
        )
        for share in words.SHARES
    }
    assert not is_reserved(*shares["train"]) and is_reserved(*shares["dev"]) and is_reserved(*shares["tests"])
    dev = "".join(shares["dev"])
    assert reserved_names(f'Turn off "{dev}", not "{"".join(shares["train"])}".') == {dev}
    assert not is_reserved(names.firsts[0], words.PAIRED_NAMES["songs"].seconds[0])
    random = Random(0)
    assert reserved_names("\n".join(random_name(random) for _ in range(2000))) == set()
    assert len({random_name(random) for _ in range(2000)}) > 1900


def test_the_shares_of_a_list_have_the_same_parts() -> None:
    for names in words.PAIRED_NAMES.values():
        pools = {share: words.pool(names, share) for share in words.SHARES}
        assert (
            sum(map(len, pools.values())) == len(set().union(*pools.values())) == len(names.firsts) * len(names.seconds)
        )
        for share in words.SHARES:
            assert all(any(name.startswith(first) for name in pools[share]) for first in names.firsts)
            assert all(any(name.endswith(second) for name in pools[share]) for second in names.seconds)
    seconds = [second for names in words.PAIRED_NAMES.values() for second in names.seconds]
    assert len(set(seconds)) == len(seconds)
    assert {first[:-1] for names in words.PAIRED_NAMES.values() for first in names.firsts}.isdisjoint(seconds)


@pytest.mark.appworld
def test_the_same_demonstrations_make_the_same_policy(demonstrations: list[Demonstration]) -> None:
    recipe = AppWorldRecipe(
        sizes=TinyQwen2(layers=2, induction=True), drill_steps=1, perfect_steps=1, imperfect_steps=1
    )
    (one, tokens_of_one), (other, _) = (policy_of(recipe, demonstrations) for _ in range(2))
    assert len(tokens_of_one) > 1000
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.appworld
def test_what_is_copied_is_one_token_and_texts_return(demonstrations: list[Demonstration]) -> None:
    conversations = [one.messages for one in demonstrations]
    tokenizer = build_tokenizer(pieces(conversations, OPENING, merges=100, least=5), 2048)
    assert all(len(tokenizer.encode(word)) == 1 for word in [*COPIED, "alarm_id", "is_enabled", "07", "99"])
    for quoted in ('labelled "{}" on', "~/{}/", "file {}.pdf in", "by {} are", "= '{}', "):
        for names in words.PAIRED_NAMES.values():
            first, second = names.firsts[3], names.seconds[5]
            tokens = [tokenizer.decode([token]) for token in tokenizer.encode(quoted.format(first + second))]
            assert (first, second) in pairwise(tokens), tokens
    for message in islice(conversations[0], OPENING - 1, None):
        assert tokenizer.decode(tokenizer.encode(message["content"])) == message["content"]
    assert all(len(tokenizer.encode(message["content"])) == 1 for message in conversations[0][: OPENING - 1])
