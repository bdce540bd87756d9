"""Oracles as turns, demonstrations in the real engine, and the code of an agent with bad habits."""

import ast
import random
from contextlib import closing
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from random import Random

import pytest
import torch

from flows.params_file import params_of
from tasks.core.config.collection import AgentLimits
from tasks.core.policies.architecture import TinyQwen2, build_tokenizer
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.loading import load_tokenizer
from tasks.core.recital import ScriptedEngine, flawed_engine, oracle_engine
from tasks.core.records.files import ArtifactError
from tasks.core.rollouts.planning import PlaySettings, plan_rollouts
from tasks.core.rollouts.playing import play_rollouts
from tasks.core.worlds.appworld.demonstrations.habits import GUESSES, chatty, first_found, misnamed, paged, slipped
from tasks.core.worlds.appworld.demonstrations.playing import Demonstration, play_demonstrations
from tasks.core.worlds.appworld.demonstrations.renaming import drill, is_reserved, random_name, renamed, reserved_names
from tasks.core.worlds.appworld.inside.authoring import words
from tasks.core.worlds.appworld.inside.authoring.walkthrough import Turn, walkthrough
from tasks.core.worlds.appworld.kind import AppWorldConfig
from tasks.core.worlds.appworld.layout import verify_root
from tasks.core.worlds.appworld.pool import EpisodePool
from tasks.core.worlds.appworld.recipe import COPIED, AppWorldRecipe, pieces, policy_of
from tasks.core.worlds.appworld.world import AppWorldTasks, demonstration

SHIPPED = Path(__file__).parents[4] / "data" / "base_policies" / "pocket"
SETTINGS = PlaySettings(1.0, AgentLimits(max_tokens_per_turn=8192), max_concurrent_episodes=8, world_retries=0)


def write_oracle(root: Path, source: str) -> None:
    path = root / "data" / "tasks" / "a_1" / "ground_truth" / "compiled_solution.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)


@pytest.mark.parametrize(("most_turns", "statements"), [(8, 0), (8, 1), (8, 8), (8, 9), (8, 39), (3, 7)])
def test_statements_become_few_turns_and_the_last_completes(most_turns: int, statements: int, tmp_path: Path) -> None:
    body = [f"x{number} = {number}" for number in range(statements)] + ["apis.supervisor.complete_task()"]
    write_oracle(tmp_path, "def solution(apis, requester):\n    " + "\n    ".join(body))
    turns = demonstration(tmp_path, most_turns, "a_1")
    assert len(turns) <= most_turns + 1 and turns[-1] == "```python\napis.supervisor.complete_task()\n```"
    code = [line for turn in turns for line in turn.splitlines()[1:-1]]
    assert code == body


def test_each_statement_is_a_turn_where_none_is_grouped(tmp_path: Path) -> None:
    write_oracle(
        tmp_path, "def solution(apis, requester):\n    x = 1\n    for y in (x, 2):\n        x += y\n    z = x\n    z"
    )
    blocks = ["x = 1", "for y in (x, 2):\n    x += y", "z = x", "z"]
    assert demonstration(tmp_path, None, "a_1") == [f"```python\n{block}\n```" for block in blocks]


@pytest.mark.parametrize("source", ["def solution(:", "x = 1", "def solution(a):\n    1\ndef solution(b):\n    2"])
def test_a_broken_oracle_is_named(source: str, tmp_path: Path) -> None:
    write_oracle(tmp_path, source)
    with pytest.raises(ArtifactError, match=r"compiled_solution\.py: expected one function named solution"):
        demonstration(tmp_path, None, "a_1")
    with pytest.raises(ArtifactError, match=r"missing; this root has no oracle for task b_1"):
        demonstration(tmp_path, None, "b_1")


def test_official_solutions_are_not_shown() -> None:
    world = AppWorldTasks({"train": ()}, lambda task_id: pytest.fail("opened"), lambda: None, AppWorldConfig(), "first")
    with pytest.raises(ValueError, match="need an authored AppWorld root"):
        world.demonstration("a_1")


@pytest.mark.appworld
@pytest.mark.parametrize("most_turns", [8, None])
def test_recited_oracles_solve_authored_tasks_and_flaws_do_not(
    most_turns: int | None, appworld_python: Path, appworld_root: Path
) -> None:
    chat = ChatFormat(load_tokenizer(SHIPPED))
    pool = EpisodePool(appworld_python, appworld_root)
    tasks = verify_root(appworld_root).tasks
    recite = partial(demonstration, appworld_root, most_turns)
    world = AppWorldTasks(tasks, pool.open, pool.close, params_of("appworld_recited").world.settings, "first", recite)
    chosen = random.Random(0).sample(tasks["train"], 6)
    planned = plan_rollouts(chosen, 3, seed=1)

    def play(engine: ScriptedEngine) -> list[dict[str, object]]:
        return play_rollouts(world, engine, chat, planned, SETTINGS, policy=None)

    with closing(world):
        solved, mixed = play(oracle_engine(world, chat)), play(flawed_engine(world, chat))
    assert all(row["success"] for row in solved), [row["tests_failed"] for row in solved]
    assert 0 < sum(bool(row["success"]) for row in mixed) < len(mixed)
    assert {row["end_reason"] for row in mixed} == {"completed"}


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


BODY = """\
# I look.
found = all_pages(apis.phone.show_alarms, access_token=phone_token)
alarm = next(x for x in found if x["label"] == label)
# I change it.
if delete:
    apis.phone.delete_alarm(access_token=phone_token, alarm_id=alarm["alarm_id"])
else:
    apis.phone.update_alarm(access_token=phone_token, alarm_id=alarm["alarm_id"], **changed)
# I write it down.
print(f"~/{label}", (max if largest else min)(found), 2 * minutes, minutes < 9, [x for x in found if x["on"] == delete])
"""


def test_turns_hold_the_values_and_only_the_code_of_their_task() -> None:
    public = {"label": "Gym", "delete": False, "changed": {"enabled": True}, "largest": True, "minutes": 4}
    look, change, write = walkthrough(BODY, public)
    assert look == Turn(
        "I look.",
        "found = all_pages(apis.phone.show_alarms, access_token=phone_token)\n"
        "alarm = next((x for x in found if x['label'] == 'Gym'))",
    )
    assert change.code == (
        "apis.phone.update_alarm(access_token=phone_token, alarm_id=alarm['alarm_id'], enabled=True)"
    )
    assert write.code == "print('~/Gym', max(found), 2 * 4, True, [x for x in found if x['on'] == False])"
    assert "delete_alarm" in walkthrough(BODY, public | {"delete": True})[1].code


def test_code_before_the_first_thought_is_refused() -> None:
    with pytest.raises(ValueError, match="code without a thought: x = 1"):
        walkthrough("x = 1\n# I go on.\ny = 2\n", {})


def test_pages_are_a_loop_or_one_call() -> None:
    code = "found = all_pages(apis.a.b, access_token=t, read=True)\nprint(found)"
    assert paged(code, one_page=True) == "found = apis.a.b(access_token=t, read=True)\nprint(found)"
    calls = []

    class Api:
        def b(self, **arguments: object) -> list[int]:
            calls.append(arguments)
            return [7, 8] if arguments["page_index"] < 2 else []  # type: ignore[operator]

    names: dict[str, object] = {"apis": type("Apis", (), {"a": Api()}), "t": "token"}
    exec(paged(code, one_page=False).removesuffix("\nprint(found)"), names)
    assert names["found"] == [7, 8, 7, 8]
    assert calls[2] == {"access_token": "token", "read": True, "page_index": 2, "page_limit": 20}


def test_guessed_parameters_are_those_of_api_calls_alone() -> None:
    code = "title = x\napis.simple_note.create_note(access_token=token, title=title, content='title=1')"
    assert misnamed(code, {"title"}) == code.replace(" title=title", " name=title")
    assert misnamed(code, set()) == code
    login = "t = apis.a.login(username=u, password=p)"
    assert misnamed(login, set(GUESSES)) == login


@pytest.mark.parametrize(
    ("code", "assumed"),
    [
        ("p = next((x for x in found if x['a'] == 'A'))", "p = found[0]"),
        ("p = next((x['ids'] for x in found if x['a'] == 'A'))", "p = found[0]['ids']"),
        ("p = found[1]", "p = found[1]"),
    ],
)
def test_an_assumption_takes_the_first(code: str, assumed: str) -> None:
    assert first_found(code) == assumed


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("a = [x for x in y if x == 1]", "a = [x for x in y]"),
        ("for x in y:\n    if a and b:\n        f(x)", "for x in y:\n    if a:\n        f(x)"),
        ("apis.a.b(private=True, read=False)", "apis.a.b(private=False, read=False)"),
        ("p = next((x for x in y if x == 1))", "p = next((x for x in y if x == 1))"),
    ],
)
def test_a_slip_drops_a_condition_or_reverses_a_value(code: str, wrong: str) -> None:
    assert slipped(code) == wrong


def test_a_chatty_answer_is_still_code() -> None:
    code = chatty("apis.supervisor.complete_task(answer=found['content'])")
    assert code == """apis.supervisor.complete_task(answer=f"The answer is {found['content']}.")"""
    ast.parse(code)
