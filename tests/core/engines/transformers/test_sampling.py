"""What both engines of this process draw from: the distribution of a full forward pass, truncated where asked for."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import MixtralConfig, MixtralForCausalLM, PreTrainedModel

from tasks.core.config.policy import PolicyConfig
from tasks.core.engines.transformers.conversations import draw, truncated, uniforms
from tasks.core.engines.transformers.engine import TransformersEngine
from tasks.core.engines.transformers.own_cache import OwnCacheEngine
from tasks.core.interfaces.engine import Generation, GenerationRequest, SamplingSettings
from tasks.core.policies.loading import load_base_model


def whole(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`top_k` and `top_p` of rows that sample among all tokens."""
    return torch.zeros(rows, dtype=torch.int64), torch.ones(rows)


def drawn(logits: list[float], temperature: float, uniform: float) -> tuple[int, float]:
    ids, logprobs = draw(
        torch.tensor([logits]), torch.tensor([temperature]), torch.tensor([uniform], dtype=torch.float64), *whole(1)
    )
    return int(ids), float(logprobs)


def test_the_distribution_function_is_inverted() -> None:
    logits = [math.log(share) for share in (0.25, 0.5, 0.25)]
    cases = {0.0: 0, 0.2499: 0, 0.2501: 1, 0.7499: 1, 0.7501: 2, 1 - 2**-53: 2}
    assert {uniform: drawn(logits, 1.0, uniform)[0] for uniform in cases} == cases


def test_logprobs_are_those_at_the_temperature() -> None:
    token, logprob = drawn([0.0, 2.0], 2.0, 0.9)
    assert token == 1
    assert abs(logprob - math.log(math.e / (1 + math.e))) < 1e-6


def test_greedy_takes_the_largest_logit_and_its_logprob_at_temperature_one() -> None:
    token, logprob = drawn([0.0, 2.0, 1.0], 0.0, 0.999)
    assert token == 1
    assert abs(logprob - math.log(math.exp(2) / (1 + math.exp(2) + math.e))) < 1e-6


def test_a_token_of_probability_zero_is_never_drawn() -> None:
    logits = [-math.inf, 0.0, -math.inf, 0.0, -math.inf]
    assert {drawn(logits, 1.0, uniform)[0] for uniform in (0.0, 0.3, 0.5, 0.7, 1 - 2**-53)} == {1, 3}


def test_frequencies_follow_the_distribution() -> None:
    shares = torch.tensor([0.1, 0.2, 0.3, 0.4])
    count = 40_000
    ids, _ = draw(
        shares.log().expand(count, 4), torch.ones(count), torch.from_numpy(uniforms(11, count)), *whole(count)
    )
    assert torch.allclose(ids.bincount(minlength=4) / count, shares, atol=0.01)


@settings(max_examples=50)
@given(st.integers(0, 2**63 - 1), st.integers(1, 6), st.integers(0, 5))
def test_a_rows_draw_does_not_depend_on_its_place(seed: int, rows: int, shift: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits, temperature = torch.randn(rows, 50, generator=generator), torch.rand(rows, generator=generator).round()
    uniform = torch.rand(rows, generator=generator, dtype=torch.float64)
    ids, logprobs = draw(logits, temperature, uniform, *whole(len(logits)))
    moved_ids, moved = draw(*(tensor.roll(shift, 0) for tensor in (logits, temperature, uniform)), *whole(rows))
    assert torch.equal(moved_ids, ids.roll(shift, 0)) and torch.equal(moved, logprobs.roll(shift, 0))


def test_a_seed_names_one_stream_of_which_a_shorter_one_is_the_start() -> None:
    assert np.array_equal(uniforms(2**63 - 1, 5), uniforms(2**63 - 1, 9)[:5])
    assert not np.array_equal(uniforms(1, 5), uniforms(2, 5))


def test_only_the_likeliest_tokens_are_drawn_and_share_the_probability() -> None:
    shares = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).expand(5, 4)
    top_k = torch.tensor([0, 2, 0, 3, 1])
    top_p = torch.tensor([1.0, 1.0, 0.7, 0.5, 0.1])
    expected = [
        [0.1, 0.4, 0.2, 0.3],
        [0, 4 / 7, 0, 3 / 7],
        [0, 4 / 7, 0, 3 / 7],
        [0, 4 / 7, 0, 3 / 7],  # of 4/9, 3/9 and 2/9 the first is less than a half
        [0, 1, 0, 0],
    ]
    assert torch.allclose(truncated(shares, top_k, top_p), torch.tensor(expected))


def test_a_truncated_rows_logprob_is_of_what_it_was_drawn_from_and_the_others_are_as_before() -> None:
    logits = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).log().expand(3, 4)
    temperature, uniform = torch.tensor([1.0, 1.0, 0.0]), torch.full((3,), 0.99, dtype=torch.float64)
    top_k, top_p = torch.tensor([2, 0, 2]), torch.ones(3)
    ids, logprobs = draw(logits, temperature, uniform, top_k, top_p)
    plain_ids, plain = draw(logits, temperature, uniform, *whole(len(logits)))
    assert ids.tolist() == [3, 3, 1] and plain_ids.tolist() == [3, 3, 1]
    assert logprobs[0].exp() == pytest.approx(3 / 7) and torch.equal(logprobs[1:], plain[1:])


PROMPT = [5, 9, 11, 3]
TEMPERATURE = 1.5
SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


@pytest.mark.parametrize("engine", [TransformersEngine, OwnCacheEngine])
@pytest.mark.parametrize(("top_k", "top_p"), [(1, 1.0), (0, 0.2), (3, 0.9), (0, 1.0)])
def test_each_id_is_drawn_from_the_truncated_distribution_and_has_its_logprob(
    engine: Callable[[PreTrainedModel], TransformersEngine],
    top_k: int,
    top_p: float,
    qwen2: Callable[[], PreTrainedModel],
) -> None:
    sampling = SamplingSettings(TEMPERATURE, 10, (), top_k=top_k, top_p=top_p)
    turns = collected(engine(qwen2()), [GenerationRequest(str(seed), PROMPT, sampling, seed) for seed in range(12)])
    for turn in turns:
        allowed = distributions(qwen2(), turn.token_ids, top_k, top_p)
        for row, token, logprob in zip(allowed, turn.token_ids, turn.logprobs, strict=True):
            assert float(row[token]) > 0 and math.log(row[token]) == pytest.approx(logprob, abs=1e-4)


@pytest.mark.parametrize("engine", [TransformersEngine, OwnCacheEngine])
def test_a_policy_that_gives_no_numbers_ends_the_run_at_its_first_turn(
    engine: Callable[[PreTrainedModel], TransformersEngine], qwen2: Callable[[], PreTrainedModel]
) -> None:
    model = qwen2()
    with torch.no_grad():
        model.get_input_embeddings().weight[7, 0] = torch.nan
    broken = GenerationRequest("a", [5, 7], SamplingSettings(1.0, 3, ()), 0)
    with pytest.raises(ValueError, match="a: a sampled token has the log-prob nan: the policy's weights"):
        collected(engine(model), [broken])


def test_a_config_that_asks_for_more_than_logits_is_sampled_from(tmp_path: Path) -> None:
    """A mixture of experts computes its router's loss from what it returns, which fails where keys are cached."""
    torch.manual_seed(0)
    asked = dict.fromkeys(("output_router_logits", "output_hidden_states"), True)
    MixtralForCausalLM(MixtralConfig(**SIZES, num_local_experts=4, **asked)).save_pretrained(tmp_path)
    model = load_base_model(tmp_path, PolicyConfig(device="cpu"))
    requests = [GenerationRequest(str(n), PROMPT[: n + 2], SamplingSettings(1.0, 5, ()), n) for n in range(3)]
    for turn in collected(TransformersEngine(model), requests):
        ids = [*PROMPT[: int(turn.sequence_id) + 2], *turn.token_ids]
        with torch.inference_mode():
            full = MixtralForCausalLM.from_pretrained(tmp_path)(torch.tensor([ids])).logits[0].log_softmax(-1)
        read = full[-6:-1].gather(1, torch.tensor(turn.token_ids)[:, None])[:, 0].tolist()
        assert read == pytest.approx(turn.logprobs, abs=1e-4)


def collected(engine: TransformersEngine, requests: list[GenerationRequest]) -> list[Generation]:
    for request in requests:
        engine.submit(request)
    turns: list[Generation] = []
    while done := engine.collect():
        turns += done
    return turns


def distributions(model: PreTrainedModel, ids: tuple[int, ...], top_k: int, top_p: float) -> torch.Tensor:
    """The distribution [T, V] that each of `ids` may come from, by the model's own pass."""
    with torch.inference_mode():
        logits = model(torch.tensor([[*PROMPT, *ids]])).logits[0, len(PROMPT) - 1 : -1]
    count = len(ids)
    return truncated((logits / TEMPERATURE).softmax(-1), torch.full((count,), top_k), torch.full((count,), top_p))
