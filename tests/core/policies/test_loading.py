"""A base model that is built empty and filled equals transformers' own. (Filled in parts: tests/core/learner.)"""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen2ForCausalLM, Qwen3_5Config, Qwen3_5ForConditionalGeneration

from tasks.core.config.policy import LoraSettings, PolicyConfig
from tasks.core.policies.checkpoint_files import policy_digest
from tasks.core.policies.loading import (
    allocate,
    empty_base_model,
    fill_base,
    load_base_model,
    save_policy,
    trainable_policy,
    trained_tensors,
    with_trained_part,
)
from tasks.core.records.files import ArtifactError
from tests.tiny_models import tiny_qwen2

LORA = PolicyConfig(lora=LoraSettings(rank=4, alpha=8), device="cpu")
FULL = PolicyConfig(trained="full", device="cpu")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("base"), hidden_size=16)


def make_base(folder: Path, hidden_size: int) -> Path:
    tiny_qwen2(hidden_size=hidden_size, tie_word_embeddings=True).save_pretrained(folder)
    return folder


def test_threads_may_build_models_at_once(base: Path) -> None:
    """While transformers loads, it patches the tying of weights; two threads at once could lose it for good."""

    def is_whole(number: int) -> bool:
        if number % 3 == 0:
            return all(weight.is_meta for weight in empty_base_model(base, FULL).parameters())
        return not any(weight.is_meta for weight in load_base_model(base, FULL).parameters())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(is_whole, range(16)))


def test_a_model_is_loaded_without_a_word(base: Path) -> None:
    """A log of a run had "Loading weights: 100%" for every stage that loads one."""
    code = "import sys; from tasks.core.config.policy import PolicyConfig as P; from pathlib import Path; "
    code += "from tasks.core.policies.loading import load_base_model as load; load(Path(sys.argv[1]), P(device='cpu'))"
    said = subprocess.run([sys.executable, "-c", code, str(base)], capture_output=True, text=True, check=True)
    assert said.stderr == ""


def shake(policy: torch.nn.Module) -> None:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for tensor in trained_tensors(policy).values():
            tensor.add_(torch.randn(tensor.shape, generator=generator))


def logits(policy: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return policy(input_ids=torch.arange(8)[None]).logits  # type: ignore[no-any-return]


@pytest.mark.parametrize("config", [LORA, FULL], ids=["lora", "full"])
def test_a_new_policy_equals_the_base(base: Path, config: PolicyConfig) -> None:
    untouched = logits(load_base_model(base, config))
    policy = trainable_policy(load_base_model(base, config), config, None, seed=3)
    assert torch.equal(logits(policy), untouched)


@pytest.mark.parametrize("config", [LORA, FULL], ids=["lora", "full"])
def test_a_saved_policy_comes_back_and_has_the_same_bytes(base: Path, config: PolicyConfig, tmp_path: Path) -> None:
    policy = trainable_policy(load_base_model(base, config), config, None, seed=3)
    shake(policy)
    save_policy(policy, tmp_path / "a")
    again = trainable_policy(load_base_model(base, config), config, tmp_path / "a", seed=4)
    assert torch.equal(logits(again), logits(policy))
    save_policy(again, tmp_path / "b")
    assert {p.name: p.read_bytes() for p in (tmp_path / "a").iterdir()} == {
        p.name: p.read_bytes() for p in (tmp_path / "b").iterdir()
    }
    assert policy_digest(tmp_path / "a") == policy_digest(tmp_path / "b")


def test_only_the_adapter_is_trained_and_in_float32(base: Path) -> None:
    config = LORA.model_copy(update={"dtype": "bfloat16"})
    policy = trainable_policy(load_base_model(base, config), config, None, seed=3)
    trained = {name: weight for name, weight in policy.named_parameters() if weight.requires_grad}
    assert all("lora_" in name and weight.dtype == torch.float32 for name, weight in trained.items())
    assert len(trained) == 2 * 7 * 2


def test_a_used_model_can_be_reset_as_if_fresh(base: Path) -> None:
    policy = trainable_policy(load_base_model(base, LORA), LORA, None, seed=3)
    start = {name: tensor.detach().clone() for name, tensor in trained_tensors(policy).items()}
    shake(policy)
    reset = trainable_policy(policy, LORA, None, seed=3)
    assert all(torch.equal(start[name], tensor) for name, tensor in trained_tensors(reset).items())


def test_the_seed_decides_the_initial_adapter(base: Path) -> None:
    first, same, other = (
        trained_tensors(trainable_policy(load_base_model(base, LORA), LORA, None, seed)) for seed in (3, 3, 4)
    )
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_peft_and_transformers_read_the_checkpoints(base: Path, tmp_path: Path) -> None:
    from peft import PeftModel

    for config in (LORA, FULL):
        policy = trainable_policy(load_base_model(base, config), config, None, seed=3)
        shake(policy)
        save_policy(policy, tmp_path / config.trained)
        expected = logits(policy)
        if config is LORA:
            read: torch.nn.Module = PeftModel.from_pretrained(load_base_model(base, config), tmp_path / "lora")
        else:
            read = Qwen2ForCausalLM.from_pretrained(tmp_path / "full")
        torch.testing.assert_close(logits(read), expected)


def test_an_adapter_of_another_base_is_refused_by_the_tensors_name(base: Path, tmp_path: Path) -> None:
    other = make_base(tmp_path / "other", hidden_size=32)
    save_policy(trainable_policy(load_base_model(other, LORA), LORA, None, seed=3), tmp_path / "adapter")
    with pytest.raises(ValueError, match=r"adapter_model\.safetensors.*q_proj\.lora_A\.weight has shape \[4, 32\]"):
        trainable_policy(load_base_model(base, LORA), LORA, tmp_path / "adapter", seed=3)


@pytest.mark.parametrize("config", [LORA, FULL], ids=["lora", "full"])
def test_missing_and_surplus_tensors_are_named(base: Path, config: PolicyConfig, tmp_path: Path) -> None:
    save_policy(trainable_policy(load_base_model(base, config), config, None, seed=3), tmp_path)
    file = next(tmp_path.glob("*.safetensors"))
    tensors = load_file(file)
    gone = sorted(tensors)[0]
    kept = {name: tensor for name, tensor in tensors.items() if name != gone}
    save_file(kept, file)
    with pytest.raises(ValueError, match=f"tensor {gone} is missing"):
        trainable_policy(load_base_model(base, config), config, tmp_path, seed=3)
    save_file({**tensors, "stranger": torch.zeros(1)}, file)
    with pytest.raises(ValueError, match="unexpected tensor stranger: the base model has no such weight"):
        trainable_policy(load_base_model(base, config), config, tmp_path, seed=3)


def test_another_alpha_is_refused(base: Path, tmp_path: Path) -> None:
    save_policy(trainable_policy(load_base_model(base, LORA), LORA, None, seed=3), tmp_path)
    other = PolicyConfig(lora=LoraSettings(rank=4, alpha=16), device="cpu")
    with pytest.raises(ValueError, match="lora_alpha is 8, but the policy in use has 16"):
        trainable_policy(load_base_model(base, other), other, tmp_path, seed=3)


def test_damaged_and_missing_files_say_what_to_do(base: Path, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"config\.json: missing; run the stage"):
        load_base_model(tmp_path / "nowhere", LORA)
    save_policy(trainable_policy(load_base_model(base, LORA), LORA, None, seed=3), tmp_path)
    file = tmp_path / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ArtifactError, match=r"adapter_model\.safetensors: damaged safetensors"):
        trainable_policy(load_base_model(base, LORA), LORA, tmp_path, seed=3)
    with pytest.raises(ArtifactError, match="missing"):
        policy_digest(tmp_path / "nowhere")


def test_importing_the_module_loads_neither_peft_nor_transformers() -> None:
    code = "import sys, tasks.core.policies.loading; print(sorted({'peft', 'transformers'} & set(sys.modules)))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


SIZES = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}


def make_sharded_base(folder: Path, tied: bool) -> Path:
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
    found, expected = filled(make_sharded_base(tmp_path, tied), config), load_base_model(tmp_path, config)
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
    policy = filled(make_sharded_base(tmp_path, True), config)
    kinds = {(".lora_" in name, weight.dtype, weight.requires_grad) for name, weight in policy.named_parameters()}
    assert kinds == {(True, torch.float32, True), (False, torch.bfloat16, False)}


def test_tensors_that_do_not_fit_are_named(tmp_path: Path) -> None:
    config = PolicyConfig(device="cpu")
    file = next(
        path for path in make_sharded_base(tmp_path, False).glob("*.safetensors") if "lm_head.weight" in load_file(path)
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
