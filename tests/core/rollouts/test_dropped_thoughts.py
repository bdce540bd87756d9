"""Thoughts that a chat template leaves out of later turns: what is sampled from is what is learned from."""

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
from tasks.core.learner.logprobs import token_logprobs
from tasks.core.learner.model import use_packed_attention
from tasks.core.learner.packing import Rollout, pack_rollouts, read_rollouts
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.records.schemas import DROPPED, PLAYED_ROLLOUTS
from tasks.core.records.tables import table_of, validate
from tasks.core.rollouts.planning import PlaySettings, plan_rollouts
from tasks.core.rollouts.playing import play_rollouts
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


def test_the_learner_computes_the_logprobs_of_the_prompts_that_were_sampled_from(
    play: Callable[..., list[Row]], thinking_model: Qwen2ForCausalLM
) -> None:
    rows = play("as_template")
    rollouts = learned_from(rows)
    assert max(len(rollout.begins) for rollout in rollouts) > 2
    use_packed_attention(thinking_model)
    for pack in pack_rollouts(rollouts, range(len(rollouts)), 400, torch.device("cpu")):
        with torch.no_grad():
            found = token_logprobs(thinking_model, pack, 1.0, 16, entropy=False).logprobs
        assert torch.allclose(found, pack.behaviour_logprobs, atol=1e-4)
        assert sum(pack.lengths) == pack.input_ids.shape[1] == sum(rollouts[row].length for row in pack.rows)


def test_kept_thoughts_leave_one_sequence(play: Callable[..., list[Row]]) -> None:
    rows = play("kept")
    assert all(DROPPED not in row for row in rows)
    assert all(rollout.begins == (0,) for rollout in learned_from(rows))
