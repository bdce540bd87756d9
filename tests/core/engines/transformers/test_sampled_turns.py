"""What both engines of this process draw from: the distribution of a full forward pass, truncated where asked for."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import MixtralConfig, MixtralForCausalLM, PreTrainedModel

from tasks.core.config.policy import PolicyConfig
from tasks.core.engines.transformers.conversations import truncated
from tasks.core.engines.transformers.engine import TransformersEngine
from tasks.core.engines.transformers.own_cache import OwnCacheEngine
from tasks.core.interfaces.engine import Generation, GenerationRequest, SamplingSettings
from tasks.core.policies.loading import load_base_model

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
