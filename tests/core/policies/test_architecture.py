from pathlib import Path

import pytest
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


def test_an_induction_circuit_copies_pairs_before_any_training() -> None:
    sizes = TinyQwen2(layers=3, rope_theta=1e6, induction=True)
    model = new_model(sizes, vocabulary=600, eos_token_id=2, pad_token_id=0, seed=0)
    right = total = 0
    for seed in range(20):
        pairs = torch.randperm(500, generator=torch.Generator().manual_seed(seed))[:24].view(12, 2) + 50
        again = pairs[torch.randperm(12, generator=torch.Generator().manual_seed(100 + seed))]
        ids = torch.cat([pairs.flatten(), again.flatten()])
        predicted = model(ids[None]).logits[0].argmax(-1)
        right += int((predicted[24::2] == again[:, 1]).sum())
        total += len(again)
    assert right / total > 0.6
    assert model.config.rope_parameters["rope_theta"] == 1e6


@pytest.mark.parametrize("sizes", [{"layers": 1}, {"width": 64, "heads": 1}, {"heads": 1}])
def test_an_induction_circuit_needs_two_layers_of_two_heads_of_64(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="two heads of 64"):
        new_model(TinyQwen2(**sizes, induction=True), vocabulary=300, eos_token_id=2, pad_token_id=0, seed=0)
