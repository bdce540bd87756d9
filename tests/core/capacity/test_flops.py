"""The counts compared with a real model's: its parameters, and the FLOPs that torch's dispatcher sees."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3_5ForCausalLM, Qwen3_5TextConfig

from tasks.core.capacity.flops import (
    ModelShape,
    adapter_parameters,
    forward_flops,
    parameters,
    training_flops,
    update_flops,
)
from tasks.core.config.policy import LoraSettings, PolicyConfig
from tasks.core.policies.loading import trainable_policy
from tests.tiny_models import tiny_qwen2_config

LORA = LoraSettings(rank=4, alpha=8)
TOKENS, LAYERS = 40, 24


def make_config(tied: bool = True) -> Qwen2Config:
    return tiny_qwen2_config(
        vocab_size=200,
        hidden_size=32,
        intermediate_size=80,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        tie_word_embeddings=tied,
        attn_implementation="eager",
    )


@pytest.mark.parametrize("tied", [True, False])
def test_parameters_are_those_of_the_model(tied: bool) -> None:
    config = make_config(tied)
    shape = ModelShape.of_config(config.to_dict())
    model = Qwen2ForCausalLM(config)
    assert parameters(shape) == sum(weight.numel() for weight in model.parameters())
    policy = trainable_policy(model.requires_grad_(False), PolicyConfig(lora=LORA), None, seed=0)
    trained = [weight.numel() for weight in policy.parameters() if weight.requires_grad]
    assert adapter_parameters(shape, LORA) == sum(trained)


def test_a_hybrid_models_parameters_and_adapter_are_those_of_the_model() -> None:
    config = Qwen3_5TextConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=8,
        linear_value_head_dim=16,
        tie_word_embeddings=False,
        eos_token_id=1,
    )
    shape = ModelShape.of_config({**config.to_dict(), "attn_output_gate": True})
    assert (shape.softmax_layers, shape.layers) == (1, 4)
    model = Qwen3_5ForCausalLM(config)
    assert parameters(shape) == sum(weight.numel() for weight in model.parameters())
    policy = trainable_policy(model.requires_grad_(False), PolicyConfig(lora=LORA), None, seed=0)
    assert adapter_parameters(shape, LORA) == sum(w.numel() for w in policy.parameters() if w.requires_grad)
    with pytest.raises(ValueError, match=r"policy\.lora\.targets: the plan does not know the size of qkv_proj"):
        adapter_parameters(shape, LoraSettings(targets=("qkv_proj",)))


def test_a_size_that_is_missing_is_named() -> None:
    config = {name: size for name, size in make_config().to_dict().items() if name != "vocab_size"}
    with pytest.raises(ValueError, match="'vocab_size' is missing"):
        ModelShape.of_config(config)


@pytest.mark.parametrize("lora", [LORA, None])
def test_flops_are_what_the_dispatcher_counts(lora: LoraSettings | None) -> None:
    config = make_config()
    shape = ModelShape.of_config(config.to_dict())
    model = Qwen2ForCausalLM(config).requires_grad_(lora is None).eval()
    policy = trainable_policy(model, PolicyConfig(lora=lora), None, seed=0) if lora else model
    ids = torch.zeros(1, TOKENS, dtype=torch.long)
    # Eager attention multiplies whole squares; a causal kernel needs only T (T + 1) / 2 of the T * T pairs.
    masked_pairs = TOKENS * TOKENS - TOKENS * (TOKENS + 1) / 2
    masked = 4 * LAYERS * 32 * masked_pairs
    with FlopCounterMode(display=False) as counter:
        logits = policy(input_ids=ids, use_cache=False).logits
    assert counter.get_total_flops() == forward_flops(shape, [TOKENS], TOKENS, lora) + masked
    with FlopCounterMode(display=False) as backward:
        logits.sum().backward()
    expected = training_flops(shape, [TOKENS], TOKENS, lora) - forward_flops(shape, [TOKENS], TOKENS, lora)
    # The first layer's frozen q, k and v need no gradient of their input: no weight before them is trained.
    unneeded = 2 * TOKENS * sum(a * b for a, b in list(shape.projections.values())[:3]) if lora else 0
    unneeded += 2 * TOKENS * sum(4 * shape.projections[name][0] for name in ("q_proj", "k_proj", "v_proj")) * bool(lora)
    assert backward.get_total_flops() == expected + 2 * masked - unneeded
    assert unneeded < 0.02 * expected


def test_an_update_is_its_passes() -> None:
    shape = ModelShape.of_config(make_config().to_dict())
    lengths, sampled = [10, 30], 15
    old, base = forward_flops(shape, lengths, sampled, LORA), forward_flops(shape, lengths, sampled)
    step = training_flops(shape, lengths, sampled, LORA)
    assert update_flops(shape, lengths, sampled, LORA, epochs=2, reference=True) == old + base + 2 * step
    assert training_flops(shape, lengths, sampled, LORA, recompute=True) == step + old
    apart = forward_flops(shape, [10], 5, LORA) + forward_flops(shape, [30], 10, LORA)
    assert old == apart < forward_flops(shape, [40], sampled, LORA)
