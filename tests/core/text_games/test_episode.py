"""The conversation around a game, on Sokoban: rewards, penalties and limits by hand; broken files of tasks."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.core.config.splits import SPLITS
from tasks.core.config.world import WorldSection
from tasks.core.interfaces.world_kind import find_world, open_world, prepare_world_folder
from tasks.core.policies.architecture import build_tokenizer
from tasks.core.records.files import ArtifactError
from tasks.core.text_games.demonstrations import demonstrations, phrases, places_text
from tasks.core.text_games.episode import Answer, answer_text, read_answer
from tasks.core.text_games.task_files import read_tasks, task_names, write_tasks
from tasks.core.text_games.world import TextGameWorld
from tasks.core.worlds.sokoban.kind import SokobanConfig
from tasks.core.worlds.sokoban.world import SokobanKind, SokobanTask
from tasks.core.worlds.webshop.catalogue import GoalTask

ROOM = "#####\n#PXO#\n#___#\n#####"


def play(*turns: str, **rules: object):
    task = SokobanTask(task_id="a", scenario_id="a", difficulty=1, split="dev", room=ROOM, solution="R")
    config = SokobanConfig(**rules)
    episode = TextGameWorld({"dev": [task]}, SokobanKind(config), config).open("a", 0)
    return episode, [episode.step(turn) for turn in turns]


def say(actions: str) -> str:
    return f"<think>x</think><answer>{actions}</answer>"


def test_a_turn_earns_what_its_actions_earn() -> None:
    episode, (first, last) = play(say("Down || up"), say("Right || Down"))
    assert first.reward == pytest.approx(-0.2)
    assert (last.reward, last.done) == (pytest.approx(10.9), True)
    assert last.api_calls == ("sokoban.Right",)
    verdict = episode.evaluate()
    assert verdict.success
    lowest, highest = -0.1 * 10 - 0.1 * 5, 10 + 2 - 0.1
    assert verdict.score == pytest.approx((-0.2 + 10.9 - lowest) / (highest - lowest))


def test_the_observation_is_reward_state_and_what_is_left() -> None:
    _, (seen,) = play(say("Down"))
    assert seen.text == "Reward:\n-0.1\n\nTurn 2:\nState:\n#####\n#_XO#\n#P__#\n#####\n"
    assert seen.ending.startswith("You have 9 actions left. Always output: <think> [your thoughts] </think> <answer>")


@pytest.mark.parametrize(
    ("turn", "reward", "played", "failed"),
    [
        ("Right", -0.1, 0, True),
        (say("Fly"), -0.1, 0, True),
        (say("Fly || Down || Jump"), -0.2, 1, True),
        (say("Down || Up || Down || Up || Down || Right"), -0.5, 5, False),
        (say("Down") + say("Right"), -0.1, 1, False),
        ("", -0.1, 0, True),
    ],
)
def test_what_cannot_be_read_costs_the_penalty_once_and_the_rest_is_played(
    turn: str, reward: float, played: int, failed: bool
) -> None:
    _, (seen,) = play(turn)
    assert seen.reward == pytest.approx(reward)
    assert (len(seen.api_calls), seen.failed) == (played, failed)


def test_what_is_no_action_costs_the_penalty_behind_the_end_too() -> None:
    for actions, reward, limits in (("Right || Fly", 10.8, {}), ("Down || Fly", -0.2, {"max_actions": 1})):
        _, (seen,) = play(say(actions), **limits)
        assert (seen.reward, seen.failed, seen.done, len(seen.api_calls)) == (pytest.approx(reward), True, True, 1)


def test_an_action_without_effect_is_told_apart() -> None:
    _, (seen,) = play(say("Left || Down"))
    assert (seen.api_calls, seen.failed_api_calls) == (("sokoban.Left", "sokoban.Down"), ("sokoban.Left",))


def test_the_world_ends_at_its_own_limits() -> None:
    episode, seen = play(*["nonsense"] * 3, max_turns=3)
    assert [turn.done for turn in seen] == [False, False, True]
    assert episode.evaluate().score == pytest.approx((-0.3 + 1 + 0.3) / (11.9 + 1 + 0.3))
    _, seen = play(say("Down || Up || Down"), say("Up || Right"), max_actions=4)
    assert [turn.done for turn in seen] == [False, True]
    assert seen[-1].api_calls == ("sokoban.Up",)
    after = episode.step(say("Right"))
    assert (after.done, after.reward, episode.evaluate().success) == (True, 0.0, False)


def test_thinking_is_a_knob_of_prompt_and_reading() -> None:
    episode, (seen,) = play("<answer>Right</answer>", thinking=False)
    assert "<think>" not in episode.prompt[1]["content"]
    assert seen.done and not seen.failed


@pytest.mark.parametrize(
    ("text", "actions", "count"),
    [
        ("<think>go</think><answer>Up || Left</answer>", ("Up", "Left"), 1),
        ("well <think>go</think> \n <answer> Up||</answer> bye", ("Up",), 1),
        ("<think>a</think>b</think><answer>Up</answer>", ("Up",), 1),
        ("<think></think><answer>Up</answer><answer>Down</answer>", ("Up",), 2),
        ("<think></think><answer>1||2||3||4||5||6</answer>", ("1", "2", "3", "4", "5"), 1),
        ("<think>x</think><answer>Up <answer>|| Down</answer>", ("Up", "Down"), 2),
        ("<answer>Up</answer>", (), 1),
        ("<think>x</think> so <answer>Up</answer>", (), 1),
        ("<think>x</think><answer>Up", (), 1),
        ("<think>x</think><answer> || </answer>", (), 1),
        ("Up", (), 0),
        ("", (), 0),
    ],
)
def test_turns_are_read_as_ragen_reads_them(text: str, actions: tuple[str, ...], count: int) -> None:
    assert read_answer(text, thinking=True, max_actions=5) == Answer(actions, count)


def test_without_thinking_the_answer_is_all() -> None:
    for text in (
        "<answer>Up</answer>",
        "<think>x</think><answer>Up</answer>",
        "x<answer>Up</answer><answer>D</answer>",
    ):
        assert read_answer(text, thinking=False, max_actions=5).actions == ("Up",)
    for text in ("<answer>Up", "</answer>Up"):
        assert read_answer(text, thinking=False, max_actions=5).actions == ()


@given(
    st.lists(st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=6), max_size=5),
    st.sampled_from([None, "", "so be it"]),
)
def test_what_is_written_is_read(actions: list[str], thought: str | None) -> None:
    read = read_answer(answer_text(actions, thought), thinking=thought is not None, max_actions=5)
    assert read == Answer(tuple(actions), 1)


@pytest.mark.parametrize(
    "part", ["<think>", "</think>", "</think> ", "<answer>", "</answer>", "||", " ", "<", "\u0000"]
)
def test_a_megabyte_of_hostile_text_is_read_at_once(part: str) -> None:
    text = "<think>" + part * (1_000_000 // len(part))
    begin = time.process_time()
    read_answer(text, thinking=True, max_actions=5)
    read_answer(text, thinking=False, max_actions=5)
    assert time.process_time() - begin < 1


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


BROKEN = [
    ("sokoban", {"room": "####\n#PX#\n####"}, "as many boxes as targets"),
    ("sokoban", {"room": "####\n#PX\n####"}, "rows of equal length"),
    ("sokoban", {"room": "#####\n#PXOO\n#####"}, "walls all around"),
    ("sokoban", {"room": "#####\n#PX?#\n#####"}, r"found '\?'"),
    ("sokoban", {"solution": "UDUDUDUDU"}, "cannot be walked in its room|does not solve its room"),
    ("sokoban", {"solution": ""}, "does not solve its room"),
    ("sokoban", {"symbols": "odd"}, "symbols: Input should be 'usual' or 'new'"),
    ("frozen_lake", {"map": ["SFH", "FHH", "HHG"]}, "no path from S to G"),
    ("frozen_lake", {"map": ["SF", "FFG"]}, "rows of equal length"),
    ("frozen_lake", {"map": ["SF", "FF"]}, "one S and one G"),
    ("frozen_lake", {"map": []}, "a map must have rows"),
    ("bandit", {"risky": "phoenix", "safe": "Phoenix"}, "two different names"),
    ("bandit", {"difficulty": 4}, "difficulty: Input should be less than or equal to 3"),
    ("bandit", {"split": "train"}, "split 'train' in the file of 'dev'"),
    ("bandit", {"task_id": "dev_001_1"}, "task id dev_001_1 is already in .*line 1"),
    ("pocketworld", {"template": "fly"}, "unknown template 'fly'"),
    ("pocketworld", {"apps": ["todo"]}, r"template create has no apps \['todo'\]"),
    ("pocketworld", {"difficulty": 2}, "difficulty 2, but template create has 1"),
]


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    prepare_world_folder(WorldSection.of(request.param), tmp_path / "world")
    return tmp_path / "world"


@pytest.mark.parametrize(("folder", "changes", "rule"), BROKEN, indirect=["folder"], ids=lambda value: str(value)[:40])
def test_a_broken_task_is_named(
    folder: Path, changes: dict[str, object], rule: str, request: pytest.FixtureRequest
) -> None:
    path = folder / "dev.jsonl"
    lines = path.read_text().splitlines()
    lines[1] = json.dumps(json.loads(lines[1]) | changes)
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(ArtifactError, match=rf"dev\.jsonl: line 2: .*({rule})"):
        open_world(WorldSection.of(request.node.callspec.params["folder"]), folder)


@pytest.mark.parametrize("folder", ["sokoban"], indirect=True)
def test_a_missing_or_truncated_file_is_named(folder: Path) -> None:
    path = folder / "dev.jsonl"
    path.write_text(path.read_text()[:-40])
    with pytest.raises(ArtifactError, match=r"dev\.jsonl: line 48: line: .*delete the folder and run"):
        open_world(WorldSection.of("sokoban"), folder)
    path.unlink()
    with pytest.raises(ArtifactError, match=r"dev\.jsonl: missing"):
        open_world(WorldSection.of("sokoban"), folder)


def test_a_line_ends_at_a_line_feed_alone(tmp_path: Path) -> None:
    """People who wrote WebShop's instructions pasted other ends of lines into them."""
    names = {**task_names("dev", 0), "difficulty": 1, "split": "dev"}
    said = "one\u2028two\u2029three\x85four\r\nfive"
    task = GoalTask(**names, instruction=said, asin="B01", attributes=("soft",), highest_price=20.0)
    write_tasks(tmp_path / "world", {split: [task] if split == "dev" else [] for split in SPLITS})
    assert read_tasks(tmp_path / "world", GoalTask)["dev"] == [task]
