"""A base model that is built empty and filled equals transformers' own. (Filled in parts: tests/core/learner.)"""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

from tasks.core.config.policy import PolicyConfig
from tasks.core.policies.loading import allocate, empty_base_model, fill_base, load_base_model, with_trained_part
from tasks.core.records.files import ArtifactError
from tests.tiny_models import tiny_qwen2

FULL = PolicyConfig(trained="full", device="cpu")
SIZES = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}


def make_base(folder: Path, tied: bool) -> Path:
    """Write a base model in several files, like a large model."""
    tiny_qwen2(tie_word_embeddings=tied).save_pretrained(folder, max_shard_size="6KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    return folder


def filled(folder: Path, config: PolicyConfig) -> torch.nn.Module:
    policy = with_trained_part(empty_base_model(folder, config), config)
    assert all(weight.is_meta for weight in policy.parameters())
    allocate(policy, torch.device("cpu"))
    fill_base(policy, folder)
    return policy


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_is_the_model_that_transformers_loads(tmp_path: Path, tied: bool, dtype: str) -> None:
    config = PolicyConfig.model_validate({"trained": "full", "dtype": dtype, "device": "cpu"})
    found, expected = filled(make_base(tmp_path, tied), config), load_base_model(tmp_path, config)
    assert found.state_dict().keys() == expected.state_dict().keys()
    ids = torch.arange(8)[None]
    assert torch.equal(found(input_ids=ids).logits, expected(input_ids=ids).logits)
    assert found.config.to_json_string() == expected.config.to_json_string()  # type: ignore[operator, union-attr]
    assert len(list(found.parameters())) == len(list(expected.parameters()))


def test_of_a_model_with_a_vision_tower_the_text_model_is_read(tmp_path: Path) -> None:
    text = {**SIZES, "num_key_value_heads": 2, "head_dim": 8, "layer_types": ["linear_attention", "full_attention"]}
    linear = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8}
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 16}
    ends = {"eos_token_id": 1, "linear_value_head_dim": 8}
    config = Qwen3_5Config(text_config={**text, **linear, **ends}, vision_config=vision)
    Qwen3_5ForConditionalGeneration(config).save_pretrained(tmp_path)
    found, expected = filled(tmp_path, FULL), load_base_model(tmp_path, FULL)
    assert found.state_dict().keys() == expected.state_dict().keys()
    assert not any("visual" in name for name in found.state_dict())
    ids = torch.arange(8)[None]
    assert torch.equal(found(input_ids=ids).logits, expected(input_ids=ids).logits)


def test_an_adapter_is_added_in_float32_and_alone_trained(tmp_path: Path) -> None:
    config = PolicyConfig(dtype="bfloat16", device="cpu")
    policy = filled(make_base(tmp_path, True), config)
    kinds = {(".lora_" in name, weight.dtype, weight.requires_grad) for name, weight in policy.named_parameters()}
    assert kinds == {(True, torch.float32, True), (False, torch.bfloat16, False)}


def test_tensors_that_do_not_fit_are_named(tmp_path: Path) -> None:
    config = PolicyConfig(device="cpu")
    file = next(
        path for path in make_base(tmp_path, False).glob("*.safetensors") if "lm_head.weight" in load_file(path)
    )
    tensors = load_file(file)
    save_file({**tensors, "lm_head.weight": torch.zeros(3, 3)}, file)
    with pytest.raises(ArtifactError, match=r"lm_head\.weight has shape \[3, 3\], not \[32, 16\]"):
        filled(tmp_path, config)
    save_file({f"other.{name}": tensor for name, tensor in tensors.items()}, file)
    with pytest.raises(ArtifactError, match=r"no file holds tensor lm_head\.weight .*sharding: replicated"):
        filled(tmp_path, config)
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(ArtifactError, match="damaged safetensors"):
        filled(tmp_path, config)
