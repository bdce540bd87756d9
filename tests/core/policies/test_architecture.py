from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, Qwen2ForCausalLM

from tasks.core.policies.architecture import COPY_SCALE, TinyQwen2, new_model


def make_model(seed: int) -> Qwen2ForCausalLM:
    return new_model(TinyQwen2(), vocabulary=300, eos_token_id=2, pad_token_id=0, seed=seed)


def test_attention_starts_as_a_scaled_copy() -> None:
    for layer in make_model(0).model.layers:
        written = layer.self_attn.o_proj.weight @ layer.self_attn.v_proj.weight
        torch.testing.assert_close(written, COPY_SCALE * torch.eye(128), atol=1e-5, rtol=0)


def test_weights_come_from_the_seed_alone() -> None:
    torch.manual_seed(1)
    first = make_model(7)
    torch.manual_seed(2)
    second, other = make_model(7), make_model(8)
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    assert all(torch.equal(left, right) for left, right in pairs)
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)


def test_a_saved_model_loads_as_a_causal_lm(tmp_path: Path) -> None:
    model = make_model(0)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    ids = torch.arange(12)[None]
    torch.testing.assert_close(loaded(ids).logits, model(ids).logits)
    assert loaded.config.hidden_size // loaded.config.num_attention_heads == 64
