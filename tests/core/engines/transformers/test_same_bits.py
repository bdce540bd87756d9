"""A conversation's ids and log-probs depend on the policy, the conversation and its seeds alone, to the last bit."""

import logging
import random
from collections.abc import Callable, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from tasks.core.config.policy import PolicyConfig
from tasks.core.engines.transformers import self_check
from tasks.core.engines.transformers.decode_attention import FREE, LADDER, Tiles
from tasks.core.engines.transformers.engine import TransformersEngine
from tasks.core.engines.transformers.own_cache import OwnCacheEngine
from tasks.core.interfaces.engine import Generation, GenerationRequest, SamplingSettings
from tasks.core.policies.loading import load_base_model
from tests.tiny_models import tiny_qwen2

from ..conftest import sharpened

pytestmark = pytest.mark.whole_runs

SHIPPED = Path(__file__).parents[4] / "data/base_policies"
VOCABULARY = 300
NAMES = tuple(map(str, range(14)))
Bits = dict[str, list[Generation]]


class Script(NamedTuple):
    """What a conversation is told, and how long its turns may be."""

    prompt: list[int]
    observations: list[list[int]]
    tokens: int
    sampling: dict[str, Any]


def script(name: str) -> Script:
    """The conversation of this name; three of four begin alike, and some are longer than a block of the kernel."""
    number = random.Random(int(name))
    start = random.Random(int(name) % 4 or int(name)).choices(range(VOCABULARY), k=40)
    own = number.choices(range(VOCABULARY), k=number.choice([1, 5, 30, 90, 520]))
    observations = [number.choices(range(VOCABULARY), k=number.choice([1, 3, 17, 70])) for _ in range(2)]
    sampling: dict[str, Any] = number.choice([{}, {}, {"top_k": 5}, {"top_p": 0.7}])
    return Script(start + own, observations, number.randrange(2, 9), sampling)


def play(engine: TransformersEngine, names: Sequence[str], at_once: int) -> Bits:
    """Play these conversations, `at_once` of them at a time, and give the turns of each."""
    waiting, played = list(names), {name: [] for name in names}
    ids: dict[str, list[int]] = {}

    def submit(name: str, context: list[int]) -> None:
        ids.setdefault(name, []).extend(context)
        told = script(name)
        temperature = 0.0 if name == "7" else 1.0
        seed = 1000 * int(name) + len(played[name])
        asked = SamplingSettings(temperature, told.tokens, (7,), **told.sampling)
        engine.submit(GenerationRequest(name, list(ids[name]), asked, seed))

    for _ in range(min(at_once, len(waiting))):
        submit(name := waiting.pop(0), script(name).prompt)
    while generations := engine.collect():
        for generation in generations:
            name = generation.sequence_id
            played[name].append(generation)
            ids[name].extend(generation.token_ids)
            turns = len(played[name])
            if turns <= len(script(name).observations):
                submit(name, script(name).observations[turns - 1])
                continue
            engine.release(name)
            if waiting:
                submit(following := waiting.pop(0), script(following).prompt)
    return played


def _qwen2(**changes: Any) -> PreTrainedModel:
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 128, "intermediate_size": 256}
    more = {"num_attention_heads": 4, "max_position_embeddings": 1024}
    return sharpened(tiny_qwen2(1, **{**sizes, **more, **changes}))


def _llama(**sizes: int) -> PreTrainedModel:
    torch.manual_seed(2)
    return LlamaForCausalLM(LlamaConfig(num_hidden_layers=2, max_position_embeddings=1024, **sizes)).eval()


def _shipped(name: str) -> PreTrainedModel:
    return load_base_model(SHIPPED / name, PolicyConfig(device="cpu"))


MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "pocket": lambda: _shipped("pocket"),
    "appworld": lambda: _shipped("appworld"),
    "SmolLM2's shape": lambda: _llama(
        vocab_size=4096, hidden_size=576, intermediate_size=1536, num_attention_heads=9, num_key_value_heads=3
    ),
    "8 heads over 2": lambda: _qwen2(num_attention_heads=8, num_key_value_heads=2),
    "a sliding window": lambda: _qwen2(use_sliding_window=True, sliding_window=48, max_window_layers=1),
    "bfloat16": lambda: _qwen2().to(torch.bfloat16),
}


@cache
def engine_of(model: str) -> TransformersEngine:
    return TransformersEngine(MODELS[model]())


@cache
def alone(model: str, name: str) -> list[Generation]:
    return play(engine_of(model), [name], 1)[name]


@pytest.mark.parametrize("model", MODELS)
@given(names=st.permutations(NAMES), at_once=st.integers(1, len(NAMES)), kept=st.integers(1, len(NAMES)))
@settings(max_examples=6, deadline=None)
def test_company_order_and_concurrency_change_no_bit(model: str, names: list[str], at_once: int, kept: int) -> None:
    assert engine_of(model)._tiles in LADDER
    assert play(engine_of(model), names[:kept], at_once) == {name: alone(model, name) for name in names[:kept]}


@pytest.mark.parametrize("model", ["pocket", "8 heads over 2"])
@pytest.mark.parametrize("pieces", [[1], [40], [40, 41, 64], [1, 2, 3]])
def test_a_prompt_in_pieces_or_from_another_conversations_cache_has_the_same_bits(
    model: str, pieces: list[int]
) -> None:
    """Earlier turns leave positions that were sampled, not read; a donor too."""
    engine, prompt = engine_of(model), script("0").prompt
    asked = GenerationRequest("whole", prompt, SamplingSettings(1.0, 6, ()), seed=3)

    def answered(request: GenerationRequest) -> tuple[Any, ...]:
        engine.submit(request)
        (generation,) = engine.collect()
        return generation[1:] if isinstance(generation, tuple) else (generation.token_ids, generation.logprobs)

    whole = answered(asked)
    engine.release("whole")
    for length in pieces:
        answered(GenerationRequest("donor", prompt[:length], SamplingSettings(1.0, 1, ()), seed=5))
    assert answered(asked) == whole  # the donor's cache
    engine.release("whole")
    assert answered(GenerationRequest("donor", prompt, asked.sampling, asked.seed)) == whole  # in pieces
    engine.release("donor")


def test_threads_change_no_bit() -> None:
    """torch's kernel divides 1024 keys of one query by the threads."""
    model, kept = MODELS["pocket"](), torch.get_num_threads()
    try:
        played = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            played.append(play(TransformersEngine(model), NAMES, 9))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(kept)
    assert played[0] == played[1] == played[2]


def test_a_model_with_caches_of_its_own_keeps_its_bits_in_company() -> None:
    engine = OwnCacheEngine(_qwen2())
    together = play(engine, NAMES, 5)
    for name in NAMES[:4]:
        assert play(engine, [name], 1)[name] == together[name]


def test_another_rows_limit_changes_no_bit_of_a_row_without_one() -> None:
    engine = engine_of("pocket")
    limited = next(name for name in map(str, count()) if script(name).sampling)
    free = next(name for name in map(str, count()) if not script(name).sampling and name != "7")
    assert play(engine, [limited, free], 2)[free] == alone("pocket", free)


def test_without_tiles_company_changes_bits() -> None:
    """The library would not do it by itself: else nothing here is tested."""
    engine = TransformersEngine(MODELS["pocket"]())
    engine._use(FREE)
    together = play(engine, NAMES, 9)
    assert any(play(engine, [name], 1)[name] != together[name] for name in NAMES)


def test_the_self_check_takes_the_next_tiles_where_the_first_do_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """One key at a time is no tile: this library's sums depend on the length."""
    bad = Tiles(1, 1, query_alone=False)
    monkeypatch.setattr(self_check, "_FOUND", {})
    monkeypatch.setattr(self_check, "LADDER", (bad, LADDER[0]))
    assert TransformersEngine(MODELS["pocket"]())._tiles == LADDER[0]


def test_a_machine_that_cannot_promise_says_so_in_one_line_and_plays(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(self_check, "_FOUND", {})
    monkeypatch.setattr(self_check, "LADDER", (FREE,))
    with caplog.at_level(logging.WARNING):
        engine = TransformersEngine(MODELS["pocket"]())
        TransformersEngine(MODELS["pocket"]())
    (line,) = caplog.messages
    assert "not promised" in line and "\n" not in line
    assert play(engine, ["1"], 1)["1"]
