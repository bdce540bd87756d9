"""Rollouts of several sequences: what is sampled from is what is learned from."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from tasks.core.config.policy import ChatSettings
from tasks.core.engines.transformers.engine import TransformersEngine
from tasks.core.interfaces.engine import Generation, GenerationRequest, SamplingSettings
from tasks.core.interfaces.world import Observation
from tasks.core.learner.logprobs import token_logprobs
from tasks.core.learner.model import use_packed_attention
from tasks.core.learner.packing import Rollout, pack_rollouts, read_rollouts
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.records.schemas import PLAYED_ROLLOUTS
from tasks.core.records.tables import table_of, validate
from tasks.core.rollouts.planning import PlaySettings, plan_rollouts
from tasks.core.rollouts.playing import play_rollouts
from tasks.core.rollouts.transcript import Transcript
from tests.finished_run import played_row
from tests.tiny_models import tiny_qwen2

Row = dict[str, Any]
TEMPLATE = Path(__file__).parents[1] / "policies" / "chat_templates" / "qwen3_6.jinja"


@pytest.fixture
def thinker(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """Letters and Qwen3.6's template, with its marks of thoughts as tokens."""
    tokenizer.add_tokens(["<think>", "</think>"])
    tokenizer.chat_template = TEMPLATE.read_text(encoding="utf-8")
    return tokenizer


@pytest.fixture
def thinking_model() -> Qwen2ForCausalLM:
    """A model that ends a thought now and then: with one token in ten."""
    model = tiny_qwen2(1, vocab_size=260, intermediate_size=32, num_key_value_heads=1, max_position_embeddings=512)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(8 if weight.ndim > 1 else 1)
        head = model.get_output_embeddings().weight
        head[259] = head.mean(0) + 0.3 * head.std()
    return model


@pytest.fixture
def play(
    game: Callable[..., Any], thinker: PreTrainedTokenizerFast, thinking_model: Qwen2ForCausalLM, settings: PlaySettings
) -> Callable[..., list[Row]]:
    def run(earlier: str) -> list[Row]:
        world, chat = game(), ChatFormat(thinker, settings=ChatSettings(earlier_thoughts=earlier))
        planned = plan_rollouts(world.tasks("train"), 4, 3)
        return play_rollouts(world, TransformersEngine(thinking_model), chat, planned, settings, policy=None)

    return run


def learned_from(rows: list[Row]) -> list[Rollout]:
    table = table_of(rows, PLAYED_ROLLOUTS)
    validate(table, PLAYED_ROLLOUTS, Path("rollouts.parquet"))
    return read_rollouts(table.append_column("advantage", pa.array(np.ones(len(rows)))))


def differences(model: Qwen2ForCausalLM, rollouts: list[Rollout]) -> list[float]:
    """Return by how much the learner's log-probs differ from the engine's, of each pack."""
    use_packed_attention(model)
    found = []
    for pack in pack_rollouts(rollouts, range(len(rollouts)), 400, torch.device("cpu")):
        with torch.no_grad():
            logprobs = token_logprobs(model, pack, 1.0, 16, entropy=False).logprobs
        found.append(float((logprobs - pack.behaviour_logprobs).abs().max()))
        assert sum(pack.lengths) == pack.input_ids.shape[1] == sum(rollouts[row].length for row in pack.rows)
    return found


def test_the_learner_computes_the_logprobs_of_the_prompts_that_were_sampled_from(
    play: Callable[..., list[Row]], thinking_model: Qwen2ForCausalLM
) -> None:
    rollouts = learned_from(play("as_template"))
    assert max(len(rollout.begins) for rollout in rollouts) > 2
    assert max(differences(thinking_model, rollouts)) < 1e-4


def test_kept_thoughts_leave_one_sequence(play: Callable[..., list[Row]]) -> None:
    rows = play("kept")
    assert all(row["sequence_begins"] == [0] for row in rows)
    assert all(rollout.begins == (0,) for rollout in learned_from(rows))


@pytest.mark.parametrize("cached", [True, False])
def test_histories_that_are_cut_rewritten_forked_and_interleaved(cached: bool) -> None:
    """Every sampled token is trained once, and the learner's log-prob of it is the engine's."""
    model = tiny_qwen2(1, vocab_size=260, intermediate_size=32, num_key_value_heads=1, max_position_embeddings=512)
    engine, sampling = TransformersEngine(model), SamplingSettings(1.0, 9, (258,))
    engine.load_adapter(None)
    conversations: dict[str, list[tuple[list[int], Generation]]] = {}

    def say(**prompts: list[int]) -> list[list[int]]:
        """Sample a turn of each conversation at once; return what each holds then."""
        for name, prompt in prompts.items():
            engine.submit(GenerationRequest(name if cached else f"{name}{len(prompt)}", prompt, sampling, len(prompt)))
        turns: dict[str, Generation] = {}
        while len(turns) < len(prompts):
            turns |= {turn.sequence_id[0]: turn for turn in engine.collect()}
        for name, prompt in prompts.items():
            conversations.setdefault(name, []).append((prompt, turns[name]))
        return [[*prompt, *turns[name].token_ids] for name, prompt in prompts.items()]

    asked = list(range(20, 50))
    a, b = say(a=asked, b=asked[:9])
    a, b = say(a=[*a, 7, 8], b=[*b, 9])  # interleaved: both go on
    (c,) = say(c=[*a[:33], 11, 12])  # forked in the midst of a sampled turn
    (a,) = say(a=[*a[:12], *a[20:], 13])  # cut
    (b,) = say(b=[3, 4, *b[2:], 14])  # rewritten from its beginning on
    say(c=[*c, 15], a=[*a, 16], b=[*b, 17])
    transcript = Transcript()
    for name in ("a", "b", "c"):
        for prompt, turn in conversations[name]:
            transcript.add_turn(prompt, turn.token_ids, turn.logprobs)
            transcript.add_reply(Observation("", done=False))
    assert transcript.played_turns == 10 and len(transcript.sequence_begins) == 5
    sampled = [token for turns in conversations.values() for _, turn in turns for token in turn.token_ids]
    columns = zip(transcript.token_ids, transcript.policy_mask, strict=True)
    assert sorted(token for token, own in columns if own) == sorted(sampled)
    rollouts = learned_from([played_row("t", "s", "train", 0.5, 0, difficulty=1) | transcript.columns()])
    assert max(differences(model, rollouts)) < 1e-5
