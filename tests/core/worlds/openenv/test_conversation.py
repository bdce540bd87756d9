"""The rules between the section, text and protocol, on tasks, observations and turns."""

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.profile_stack import stacked
from tasks.core.config.world import WorldSection
from tasks.core.interfaces.world_kind import prepare_world_folder
from tasks.core.records.files import ArtifactError
from tasks.core.text_games.task_files import read_tasks
from tasks.core.worlds.openenv import conversation
from tasks.core.worlds.openenv.conversation import OpenEnvMismatch, ResetTask, judged, shown, turn_action, write_openenv
from tasks.core.worlds.openenv.kind import OpenEnvConfig, OpenEnvScenario, OpenEnvSplits, OpenEnvTask, OpenEnvVerdict
from tasks.core.worlds.pocketworld.problem import TaskSpec

DRAWN = OpenEnvScenario(instruction="Play.", count=2)
LISTED = OpenEnvScenario(
    instruction="Win.",
    difficulty=3,
    tasks=tuple(OpenEnvTask(reset={"level": {"id": "$index"}, "seed": "$rollout_seed"}) for _ in range(4)),
)


def config(**splits: tuple[OpenEnvScenario, ...]) -> OpenEnvConfig:
    all_of_them = dict.fromkeys(("dev", "test_normal", "test_challenge"), (DRAWN,))
    return OpenEnvConfig(action={"message": "$text"}, splits=OpenEnvSplits(**(all_of_them | splits)))


def test_scenarios_are_counted_and_what_stands_for_numbers_is_filled_in(tmp_path: Path) -> None:
    write_openenv(config(train=(DRAWN, LISTED)), 1, tmp_path / "world")
    tasks = read_tasks(tmp_path / "world", ResetTask)
    train = tasks["train"]
    assert [task.task_id for task in train[:4]] == ["train_001_1", "train_001_2", "train_001_3", "train_002_1"]
    assert [task.scenario_id for task in train[6:]] == ["train_003"] * 4
    assert [task.difficulty for task in train] == [1] * 6 + [3] * 4
    assert [task.reset["level"] for task in train[6:]] == [{"id": number} for number in range(4)]
    seeds = [task.reset["seed"] for part in tasks.values() for task in part if task.reset["seed"] != "$rollout_seed"]
    assert len(set(seeds)) == len(seeds) == 24
    assert all(isinstance(seed, int) and 0 <= seed < 2**31 for seed in seeds)
    assert conversation.filled(train[6].reset, {"$rollout_seed": 7}) == {"level": {"id": 0}, "seed": 7}


def test_entries_count_on_from_their_first_index(tmp_path: Path) -> None:
    entry = OpenEnvScenario(instruction="Win.", count=2, tasks=LISTED.tasks[:3])
    later = entry.model_copy(update={"first": 6, "difficulty": 2})
    write_openenv(config(train=(entry, later)), 1, tmp_path / "world")
    train = read_tasks(tmp_path / "world", ResetTask)["train"]
    assert [task.reset["level"] for task in train] == [{"id": number} for number in range(12)]


def test_the_profile_says_what_pocketworld_serves(tmp_path: Path) -> None:
    profile = OpenEnvConfig.model_validate(stacked(["openenv"])["world"]["openenv"])
    write_openenv(profile, 1, tmp_path / "served")
    prepare_world_folder(WorldSection.of("pocketworld"), tmp_path / "world")
    told = read_tasks(tmp_path / "served", ResetTask)
    for split, specs in read_tasks(tmp_path / "world", TaskSpec).items():
        assert [task.difficulty for task in told[split]] == [spec.difficulty for spec in specs]
        places = [(task.reset["split"], task.reset["index"]) for task in told[split]]
        assert places == [(split, number) for number in range(len(specs))]


def test_a_section_that_says_too_little_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"world.openenv.splits.train is empty"):
        write_openenv(config(), 1, tmp_path / "world")
    with pytest.raises(ArtifactError, match=r"world.openenv.action is empty"):
        write_openenv(OpenEnvConfig(), 1, tmp_path / "world")
    assert not (tmp_path / "world").exists()


CHAT = {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}], "metadata": {"a": 1}}


def test_text_is_shown_as_it_is_and_other_values_as_json() -> None:
    seen: dict[str, Any] = {"board": [[0, 1]], "message": "Your move.", "left": 3, "metadata": {"seed": 1}}
    assert shown(seen, ()) == "board: [[0, 1]]\nmessage: Your move.\nleft: 3"
    assert shown(seen, ("message", "board")) == "Your move.\n[[0, 1]]"
    assert shown(CHAT, ("messages.1.content",)) == "U"
    assert shown({"message": "a\ud800b"}, ("message",)) == "a?b"


def test_fields_that_no_observation_has_are_named() -> None:
    assert shown({"message": "m", "error": None}, ("error", "message")) == "m"
    with pytest.raises(OpenEnvMismatch, match=r"none of text, error in an observation with message"):
        shown({"message": "m"}, ("text", "error"))
    for path in ("messages.7.content", "messages.role", "x"):
        assert conversation.field(CHAT, path) is None


def test_an_episode_opens_with_the_servers_messages_or_with_the_instruction() -> None:
    assert conversation.opening(CHAT, "Win.", OpenEnvConfig(prompt="messages")) == CHAT["messages"]
    said = conversation.opening({"board": "..X"}, "Win.", OpenEnvConfig(observation=("board",)))
    assert said == [{"role": "user", "content": "Win.\n\n..X"}]
    with pytest.raises(OpenEnvMismatch, match="prompt: metadata holds no chat messages"):
        conversation.opening(CHAT, "Win.", OpenEnvConfig(prompt="metadata"))


@pytest.mark.parametrize(
    ("rules", "turn", "action", "blocks"),
    [
        ({"action": {"message": "$text"}}, " Hi ", {"message": " Hi "}, 1),
        ({"action": {"message": "$text"}, "reads": "answer"}, "<think>so</think><answer> up </answer>", "up", 1),
        ({"action": {"message": "$text"}, "reads": "answer"}, "up", None, 0),
        ({"action": {"code": "$text"}, "reads": "code"}, "x\n```python\nf()\n```", {"code": "f()\n"}, 1),
        ({"action": {"code": "$text"}, "reads": "code"}, "no code", None, 0),
        ({"action": {"move": "$json"}}, "3", {"move": 3}, 1),
        ({"action": {"move": "$json"}}, "three", None, 0),
        ({"action": {"move": "$json"}}, "[" * 100_000, None, 0),
        ({"action": {"type": "a", "n": {"m": [1, "$text"]}}}, "hi", {"type": "a", "n": {"m": [1, "hi"]}}, 1),
    ],
)
def test_what_a_turn_sends(rules: dict[str, Any], turn: str, action: object, blocks: int) -> None:
    found = turn_action(turn, OpenEnvConfig(**rules), "first")
    assert found.action == ({"message": action} if isinstance(action, str) else action)
    assert found.blocks == blocks


@given(st.text())
def test_any_turn_is_sent_as_it_is(turn: str) -> None:
    found = turn_action(turn, OpenEnvConfig(action={"message": "$text", "id": "$index"}), "first")
    assert found.action == {"message": turn, "id": "$index"}


@pytest.mark.parametrize(
    ("total", "rules", "success", "score"),
    [
        (1.0, {}, True, 1.0),
        (0.4, {}, False, 0.4),
        (7.0, {}, True, 1.0),
        (-3.0, {"lowest": -5, "highest": 5, "solved": 2}, False, 0.2),
        (2.0, {"lowest": -5, "highest": 5, "solved": 2}, True, 0.7),
        (0.0, {"success": "won", "score": "info.grade"}, True, 0.25),
        (9.0, {"success": "lost"}, False, 1.0),
    ],
)
def test_the_verdict_is_of_rewards_or_of_fields(
    total: float, rules: dict[str, Any], success: bool, score: float
) -> None:
    verdict = judged({"won": True, "lost": "yes", "info": {"grade": 0.25}}, total, OpenEnvVerdict(**rules))
    assert (verdict.success, verdict.score) == (success, pytest.approx(score))


@pytest.mark.parametrize(
    ("observation", "rules", "message"),
    [
        ({"grade": None}, {"score": "grade"}, "score: grade is None, no number"),
        ({}, {"score": "grade"}, "score: grade is None, no number"),
        ({"grade": math.nan}, {"score": "grade"}, "score: grade is nan, no number"),
        ({"grade": "B"}, {"score": "grade"}, "score: grade is 'B', no number"),
        ({"won": None}, {"success": "won"}, "success: won is null at the end of an episode"),
    ],
)
def test_an_ended_episode_without_its_verdict_is_an_error(
    observation: dict[str, Any], rules: dict[str, str], message: str
) -> None:
    with pytest.raises(OpenEnvMismatch, match=rf"world\.openenv\.verdict\.{message}"):
        judged(observation, 0.0, OpenEnvVerdict(**rules))


def test_an_episode_that_was_cut_has_no_verdict_yet() -> None:
    verdict = judged({}, 1.0, OpenEnvVerdict(success="won", score="grade"), ended=False)
    assert (verdict.success, verdict.score) == (False, 0.0)
