"""Programs that play: whatever they ask is learned from exactly as it was sampled, and their faults are the world's."""

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
import torch
from openai import AuthenticationError, BadRequestError, NotFoundError, OpenAI
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from tasks.core.config.collection import AgentLimits
from tasks.core.config.splits import SPLITS
from tasks.core.config.world import WorldSection
from tasks.core.engines.transformers.engine import TransformersEngine
from tasks.core.interfaces.asking import Said
from tasks.core.interfaces.world import World
from tasks.core.interfaces.world_kind import open_world, prepare_world_folder
from tasks.core.learner.logprobs import token_logprobs
from tasks.core.learner.model import use_packed_attention
from tasks.core.learner.packing import pack_rollouts, read_rollouts
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.recital import ScriptedEngine
from tasks.core.records.schemas import PLAYED_ROLLOUTS
from tasks.core.records.tables import table_of, validate
from tasks.core.rollouts.planning import PlaySettings, plan_rollouts
from tasks.core.rollouts.playing import play_rollouts
from tasks.core.rollouts.scheduler import CollectionStats
from tasks.core.tool_calls import readable_answer

Row = dict[str, Any]
Play = Callable[..., list[Row]]
PROGRAM = Path(__file__).parents[2] / "programs" / "agent.py"
HELLO: Any = [{"role": "user", "content": "Hello?"}]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., World]]:
    worlds: list[World] = []

    def run(does: str, **knobs: Any) -> World:
        """Open the world whose tasks all do this."""
        folder = tmp_path / "program"
        folder.mkdir(exist_ok=True)
        lines = [{"id": f"{split}1", "split": split, "does": does} for split in SPLITS]
        (folder / "tasks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        section = {"command": ("python", str(PROGRAM)), "folder": str(folder), **knobs}
        config = WorldSection.of("program", program=section)
        prepare_world_folder(config, tmp_path / "world")
        worlds.append(open_world(config, tmp_path / "world"))
        return worlds[-1]

    yield run
    for world in worlds:
        world.close()


@pytest.fixture
def play(opened: Callable[..., World], engine: TransformersEngine, chat: ChatFormat, settings: PlaySettings) -> Play:
    def run(does: str, rollouts: int = 1, **changes: Any) -> list[Row]:
        knobs, stats = changes.pop("knobs", {}), changes.pop("stats", None)
        world, plays = opened(does, **knobs), changes.pop("engine", engine)
        chosen = changes.pop("chat", chat)
        limits = dataclasses.replace(settings, **changes) if changes else settings
        planned = plan_rollouts(world.tasks("train"), rollouts, 3)
        rows = play_rollouts(world, plays, chosen, planned, limits, policy=None, stats=stats)
        validate(table_of(rows, PLAYED_ROLLOUTS), PLAYED_ROLLOUTS, Path("rollouts.parquet"))
        return rows

    return run


def sequences(row: Row) -> list[tuple[list[int], list[int]]]:
    """The ids of each sequence, and where in it ids were sampled."""
    ends = [*row["sequence_begins"][1:], len(row["token_ids"])]
    spans = [slice(*span) for span in zip(row["sequence_begins"], ends, strict=True)]
    masks = [row["policy_mask"][span] for span in spans]
    return [
        (row["token_ids"][span], [place for place, sampled in enumerate(mask) if sampled])
        for span, mask in zip(spans, masks, strict=True)
    ]


def is_learnt_as_sampled(rows: list[Row], model: Qwen2ForCausalLM) -> None:
    table = table_of(rows, PLAYED_ROLLOUTS).append_column("advantage", pa.array([1.0] * len(rows)))
    rollouts = read_rollouts(table)
    use_packed_attention(model)
    for pack in pack_rollouts(rollouts, range(len(rollouts)), 4000, torch.device("cpu")):
        with torch.no_grad():
            found = token_logprobs(model, pack, 1.0, 16, entropy=False).logprobs
        assert torch.allclose(found, pack.behaviour_logprobs, atol=1e-5)


def test_a_conversation_is_one_sequence_of_the_ids_that_were_sampled(
    play: Play, chat: ChatFormat, model: Qwen2ForCausalLM
) -> None:
    (row,) = rows = play("talk")
    assert (row["end_reason"], row["return"], row["success"]) == ("completed", 0.5, False)
    assert row["sequence_begins"] == [0] and len(row["turns"]) == 3
    text = chat.text_with_marks(row["token_ids"])
    assert text.startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nOne?<|im_end|>\n")
    assert "<|im_end|>\n<|im_start|>user\nTwo?<|im_end|>\n<|im_start|>assistant\n" in text
    assert text.count("<|im_end|>") in (6, 7), "the last turn may be cut by its length"
    is_learnt_as_sampled(rows, model)


def test_forks_rewritten_histories_and_conversations_in_turn_are_sequences(
    play: Play, chat: ChatFormat, model: Qwen2ForCausalLM
) -> None:
    limits = {"max_turns": 20, "max_tokens_per_turn": 10, "max_observation_tokens": 40}
    rows = play("branch", 2, limits=AgentLimits(**limits))
    for row in rows:
        assert (row["tests_passed"], row["tests_failed"], row["return"]) == (["branched"], ["came back"], 0.5)
        assert len(row["turns"]) == 7 and len(row["sequence_begins"]) == 4
        texts = [chat.text_with_marks(ids) for ids, _ in sequences(row)]
        assert sum("First?" in text for text in texts) == 3 and sum("rewritten" in text for text in texts) == 1
        fork = next(ids for ids, _ in sequences(row) if "or else?" in chat.text_with_marks(ids))
        whole = next(ids for ids, _ in sequences(row) if "First?" in chat.text_with_marks(ids) and ids != fork)
        shared = next(place for place, (one, other) in enumerate(zip(fork, whole, strict=False)) if one != other)
        first = next(places for ids, places in sequences(row) if ids == whole)
        assert shared > first[0], "the fork has the first answer in the ids in which it was sampled"
        turns = [turn for turn in row["turn_index"] if turn >= 0]
        assert sorted(set(turns)) == list(range(7)) and turns == sorted(turns)
    is_learnt_as_sampled(rows, model)


def test_what_is_asked_at_once_gives_the_same_bytes_twice(play: Play, model: Qwen2ForCausalLM) -> None:
    limits = AgentLimits(max_turns=20, max_tokens_per_turn=10, max_observation_tokens=40)
    once, again = (play("at_once", 2, limits=limits) for _ in range(2))
    assert once == again
    assert [len(row["turns"]) for row in once] == [10, 10]
    same = [ids for ids, _ in sequences(once[0])][-2:]
    assert same[0] != same[1], "equal requests have seeds of their own"
    is_learnt_as_sampled(once, model)


@pytest.mark.parametrize("template", ["qwen3.jinja", "qwen2_5.jinja", None])
def test_tools_are_shown_by_the_template_and_calls_are_answered_as_calls(
    template: str | None, play: Play, tokenizer: PreTrainedTokenizerFast
) -> None:
    if template is not None:
        folder = Path(__file__).parents[1] / "policies"
        path = next(folder.rglob(template))
        tokenizer.chat_template = path.read_text(encoding="utf-8")
    chat = ChatFormat(tokenizer)
    turns = ['Well. <tool_call>\n{"name":"look","arguments":{}}\n</tool_call>', "cat"]
    engine, limits = ScriptedEngine("scripted", chat, lambda task, seed: turns), AgentLimits(max_turns=4)
    (row,) = play("use_tools", chat=chat, engine=engine, limits=limits)
    assert (row["return"], row["success"], row["end_reason"]) == (1.0, True, "completed")
    assert [turn["api_calls"] for turn in row["turns"]] == [["program.look"], []]
    text = chat.text_with_marks(row["token_ids"])
    assert row["sequence_begins"] == [0] and '"name":"look","arguments":{}' in text, "as it was sampled"
    assert "<tools>" in text and "<tool_response>\na cat\n</tool_response>" in text


def test_requests_that_cannot_be_honoured_are_refused_by_field(play: Play) -> None:
    (row,) = play("errors")
    assert row["tests_passed"] == [
        "key 401 None",
        "n 400 n",
        "tool_choice 400 tool_choice",
        "role 400 messages.0.role",
        "image 400 messages.0.content",
        "format 400 response_format",
        "arguments 400 messages.0.tool_calls",
        "unknown 400 best_of",
        "fine None None",
    ]
    assert len(row["turns"]) == 1


def test_limits_end_a_program_that_does_not_end_itself(
    play: Play, chat: ChatFormat, model: Qwen2ForCausalLM, short_engine: TransformersEngine
) -> None:
    (endless,) = rows = play("endless")
    assert (endless["end_reason"], endless["return"], len(endless["turns"])) == ("turn_limit", 0.0, 4)
    (told,) = play("until_refused")
    assert (told["end_reason"], told["return"], told["tests_passed"]) == ("completed", 0.25, ["turn_limit"])
    (full,) = play("until_refused", engine=short_engine, limits=AgentLimits(max_turns=20, max_tokens_per_turn=10))
    assert full["tests_passed"] == ["context_length_exceeded"]
    is_learnt_as_sampled(rows, model)


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("crash", "ended with code 1: .*ZeroDivisionError: the program's own fault"),
        ("quits", "ended with code 3"),
        ("nothing", "wrote no result"),
        ("high", "reward: Input should be less than or equal to 1"),
        ("nan", "reward: Input should be"),
        ("empty", "neither a reward nor tests"),
        ("odd", "rewards: Extra inputs are not permitted"),
        ("hang", "took more than 0.3 s"),
    ],
)
def test_a_fault_of_the_program_is_the_worlds(does: str, said: str, play: Play) -> None:
    stats = CollectionStats()
    (row,) = play(does, stats=stats, knobs={"seconds": 0.3 if does == "hang" else 60.0})
    assert (row["end_reason"], row["return"], row["world_retries"]) == ("world_fault", 0.0, 1)
    (fault, count), *others = stats.world_faults.items()
    assert re.search(said, fault) and count + len(others) == 2, fault


def test_a_program_that_broke_is_played_again(play: Play) -> None:
    rows = play("brittle", 8, world_retries=8)
    assert {row["end_reason"] for row in rows} == {"completed"}
    assert any(row["world_retries"] for row in rows)


def test_a_closed_episode_leaves_no_process_and_no_right_to_ask(opened: Callable[..., World]) -> None:
    world = opened("talk")
    before = psutil.Process().children(recursive=True)
    with closing(world.open("train1", 3)) as episode:
        assert [message["content"] for message in episode.prompt] == ["Be brief.", "One?"]
        (program,) = set(psutil.Process().children(recursive=True)) - set(before)
        variables = program.environ()
    client = OpenAI(base_url=variables["OPENAI_BASE_URL"], api_key=variables["OPENAI_API_KEY"], max_retries=0)
    with pytest.raises(AuthenticationError, match="no episode"), client:
        client.models.list()
    assert not program.is_running()


@pytest.mark.program
def test_the_openai_client_reads_answers_streams_calls_and_errors(opened: Callable[..., World]) -> None:
    """Its own types, in this process: the program itself waits for its second answer."""
    with closing(opened("hang").open("train1", 3)) as episode, ThreadPoolExecutor(1) as pool:
        guest = episode._guest
        client = OpenAI(base_url=guest.base_url, api_key=guest.token, max_retries=0)

        def answered(text: str, **fields: Any) -> Any:
            call = pool.submit(client.chat.completions.create, model="mine", messages=HELLO, **fields)
            asked = episode.next_ask()
            message, _ = readable_answer(text, "hm", asked.tools, 7)
            episode.answer(Said(message, "tool_calls" if "tool_calls" in message else "stop", 11, 5))
            return call.result()

        assert [model.id for model in client.models.list()] == ["policy"]
        whole = answered("Hi.", max_completion_tokens=9)
        assert (whole.model, whole.choices[0].message.content, whole.choices[0].finish_reason) == (
            "mine",
            "Hi.",
            "stop",
        )
        assert (whole.usage.prompt_tokens, whole.usage.completion_tokens, whole.usage.total_tokens) == (11, 5, 16)
        tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
        written = '<tool_call>{"name": "look", "arguments": {"at": "é"}}</tool_call>'
        (call,) = answered(written, tools=[tool]).choices[0].message.tool_calls
        assert (call.function.name, json.loads(call.function.arguments), len(call.id)) == ("look", {"at": "é"}, 9)
        chunks = list(answered("Hi.", stream=True, stream_options={"include_usage": True}))
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == "Hi."
        assert chunks[-2].choices[0].finish_reason == "stop" and chunks[-1].usage.total_tokens == 16
        (streamed,) = (
            call
            for chunk in answered(written, tools=[tool], stream=True)
            for call in chunk.choices[0].delta.tool_calls or ()
        )
        assert (streamed.id, streamed.function.arguments) == (call.id, call.function.arguments)
        with pytest.raises(BadRequestError) as refused:
            client.chat.completions.create(model="mine", messages=HELLO, logprobs=True)
        assert (refused.value.param, refused.value.type) == ("logprobs", "invalid_request_error")
        with pytest.raises(NotFoundError):
            client.embeddings.create(model="mine", input="Hi.")
