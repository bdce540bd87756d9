"""Engines that recite, on pocketworld in its real sandbox, through the real agent loop and the shipped tokenizer."""

import random
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import pstdev
from typing import Any

import pytest

from tasks.core.config.collection import AgentLimits
from tasks.core.config.engine import EngineSection
from tasks.core.config.policy import PolicyConfig
from tasks.core.config.world import WorldSection
from tasks.core.interfaces.engine import ContextOverflow, GenerationRequest, SamplingSettings
from tasks.core.interfaces.engine_kind import EngineNeeds, open_engine
from tasks.core.interfaces.world import Demonstrating, World
from tasks.core.interfaces.world_kind import open_world, prepare_world_folder
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.loading import load_tokenizer
from tasks.core.recital import CONTEXT_LENGTH, GIVE_UP, WRONG_ANSWER, ScriptedEngine, with_flaw
from tasks.core.rollouts.planning import PlaySettings, plan_rollouts
from tasks.core.rollouts.playing import play_rollouts

SHIPPED = Path(__file__).parents[3] / "data" / "base_policies" / "pocket"
SETTINGS = PlaySettings(1.0, AgentLimits(max_tokens_per_turn=4096), max_concurrent_episodes=16, world_retries=0)


@pytest.fixture(scope="module")
def chat() -> ChatFormat:
    return ChatFormat(load_tokenizer(SHIPPED))


def play(world: World, chat: ChatFormat, name: str, tasks: int, each: int, seed: int = 7) -> list[dict[str, Any]]:
    config = EngineSection.of("oracle") if name == "oracle" else EngineSection.of("scripted")
    engine = open_engine(config, EngineNeeds(PolicyConfig(), SHIPPED, world, chat))
    planned = plan_rollouts(world.tasks("train")[:tasks], each, seed)
    return play_rollouts(world, engine, chat, planned, SETTINGS, policy=None)


def test_the_oracle_solves_every_task(world: World, chat: ChatFormat) -> None:
    rows = play(world, chat, "oracle", tasks=12, each=1)
    assert [row["success"] for row in rows] == [True] * 12
    assert {(row["engine"], row["engine_version"], row["end_reason"]) for row in rows} == {("oracle", "1", "completed")}
    assert isinstance(world, Demonstrating)
    turns = world.demonstration(rows[0]["task_id"])
    first = [id for id, turn in zip(rows[0]["token_ids"], rows[0]["turn_index"], strict=True) if turn == 0]
    assert chat.decode(first) == turns[0]
    assert set(rows[0]["engine_logprobs"]) == {0.0}


def test_flaws_are_seeded_and_mix_the_returns_of_groups(world: World, chat: ChatFormat) -> None:
    rows = play(world, chat, "scripted", tasks=8, each=6)
    solved = sum(row["success"] for row in rows) / len(rows)
    assert 0.4 < solved < 0.9  # a wrong answer is none where nothing was asked
    groups = [[row["return"] for row in rows if row["task_id"] == task.task_id] for task in world.tasks("train")[:8]]
    assert sum(pstdev(group) > 0 for group in groups) >= 6
    assert rows == play(world, chat, "scripted", tasks=8, each=6)
    assert [row["success"] for row in rows] != [row["success"] for row in play(world, chat, "scripted", 8, 6, seed=8)]


def test_every_flaw_comes_up_and_leaves_the_turns_before_it() -> None:
    turns = ["one", "two", "end"]
    drawn = {tuple(with_flaw(turns, random.Random(seed))) for seed in range(200)}
    assert drawn == {("one", "two", "end"), (GIVE_UP,), ("one", GIVE_UP), ("one", "two", WRONG_ANSWER), ("one", "end")}
    assert {tuple(with_flaw(["end"], random.Random(seed))) for seed in range(50)} == {
        ("end",),
        (GIVE_UP,),
        (WRONG_ANSWER,),
    }


def request(name: str, tokens: int = 4096, prompt: int = 3) -> GenerationRequest:
    return GenerationRequest(name, [1] * prompt, SamplingSettings(1.0, tokens, ()), 0, "task")


def test_turns_come_in_order_then_it_gives_up_and_a_released_one_begins_again(chat: ChatFormat) -> None:
    engine = ScriptedEngine("told", chat, lambda task_id, seed: [f"{task_id} {seed}", "end"])
    said = []
    for _ in range(3):
        engine.submit(request("a"))
        (generation,) = engine.collect()
        assert generation.stop_reason == "stop" and generation.token_ids[-1] == chat.stop_ids[0]
        said.append(chat.decode(generation.token_ids[:-1]))
    assert said == ["task 0", "end", GIVE_UP]
    engine.submit(request("b"))
    engine.release("b")
    engine.release("a")
    assert engine.collect() == []
    engine.submit(request("a"))
    assert chat.decode(engine.collect()[0].token_ids[:-1]) == "task 0"


def test_limits_cut_a_turn_and_end_a_conversation(chat: ChatFormat) -> None:
    engine = ScriptedEngine("told", chat, lambda task_id, seed: ["\u00e9" * 30])
    engine.submit(request("a", tokens=5))
    (generation,) = engine.collect()
    assert (len(generation.token_ids), len(generation.logprobs), generation.stop_reason) == (5, 5, "length")
    with pytest.raises(ContextOverflow):
        engine.submit(request("b", prompt=CONTEXT_LENGTH))
    for likeliest in ({"top_k": 1}, {"top_p": 0.5}):
        with pytest.raises(ValueError, match="the engine told recites: it has no top_k and no top_p"):
            engine.submit(replace(request("c"), sampling=SamplingSettings(1.0, 5, (), **likeliest)))


def test_where_luck_decides_there_is_nothing_to_recite(chat: ChatFormat, tmp_path: Path) -> None:
    prepare_world_folder(WorldSection.of("frozen_lake"), tmp_path / "world")
    refused = pytest.raises(ValueError, match=r"world\.frozen_lake: on slippery ice .* no collection\.demonstrations")
    with closing(open_world(WorldSection.of("frozen_lake"), tmp_path / "world")) as luck, refused:
        play(luck, chat, "oracle", tasks=2, each=2)


def test_a_world_without_solutions_is_refused(chat: ChatFormat, world: World) -> None:
    class Mute:
        tasks, open, close = world.tasks, world.open, world.close

    with pytest.raises(ValueError, match=r"engine\.name: this world has no solutions to recite; use an engine"):
        open_engine(EngineSection.of("oracle"), EngineNeeds(PolicyConfig(), SHIPPED, Mute(), chat))
