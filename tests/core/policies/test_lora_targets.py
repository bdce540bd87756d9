"""`policy.lora.targets` checked against tiny models of several architectures."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from peft import PeftModel

from tasks.core.config.policy import LoraSettings, PolicyConfig
from tasks.core.policies.loading import save_policy, trainable_policy, trained_tensors
from tasks.core.policies.policy_weights import PolicyWeights

SIZES: dict[str, Any] = {
    "vocab_size": 31,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
GLM = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "first_k_dense_replace": 1}
LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "head_dim": 8,
    "layer_types": ["linear_attention", "full_attention"],
}
ATTENTION = {"q_proj", "k_proj", "v_proj", "o_proj"}
SEVEN = {*ATTENTION, "gate_proj", "up_proj", "down_proj"}
Make = Callable[[], torch.nn.Module]
MODELS: dict[str, tuple[Make, set[str]]] = {
    "qwen2": (lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**SIZES, tie_word_embeddings=True)), SEVEN),
    "phi3": (
        lambda: hf.Phi3ForCausalLM(hf.Phi3Config(**SIZES, original_max_position_embeddings=64)),
        {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"},
    ),
    "mixtral": (lambda: hf.MixtralForCausalLM(hf.MixtralConfig(**SIZES, num_local_experts=4)), ATTENTION),
    "qwen2_moe": (
        lambda: hf.Qwen2MoeForCausalLM(hf.Qwen2MoeConfig(**SIZES, **EXPERTS, shared_expert_intermediate_size=8)),
        {*SEVEN, "shared_expert_gate"},
    ),
    "glm4_moe": (lambda: hf.Glm4MoeForCausalLM(hf.Glm4MoeConfig(**SIZES, **GLM, head_dim=8)), ATTENTION),
    "qwen3_5": (
        lambda: hf.Qwen3_5ForCausalLM(hf.Qwen3_5TextConfig(**SIZES, **LINEAR)),
        {*SEVEN, "in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "out_proj"},
    ),
    "falcon_h1": (
        lambda: hf.FalconH1ForCausalLM(
            hf.FalconH1Config(
                **SIZES, head_dim=8, mamba_d_ssm=16, mamba_n_heads=2, mamba_d_head=8, mamba_d_state=8, mamba_n_groups=1
            )
        ),
        {*SEVEN, "in_proj"},
    ),
}


def policy_of(make: Make, *targets: str) -> torch.nn.Module:
    lora = LoraSettings(rank=2, alpha=4, **({"targets": targets} if targets else {}))
    torch.manual_seed(1)
    return trainable_policy(_eager(make), PolicyConfig(lora=lora, device="cpu"), None, seed=3)


def adapted(policy: torch.nn.Module) -> set[str]:
    return {name.partition(".lora_")[0].rpartition(".")[2] for name in trained_tensors(policy)}


@pytest.mark.parametrize("name", MODELS)
def test_all_linear_modules_are_adapted_and_what_peft_reads_is_what_the_engine_serves(
    name: str, tmp_path: Path
) -> None:
    make, expected = MODELS[name]
    policy = policy_of(make)
    assert adapted(policy) == expected
    policy.double()  # deltas this large enlarge float32's rounding a thousandfold
    with torch.no_grad():
        for number, tensor in enumerate(trained_tensors(policy).values()):
            tensor.copy_(torch.randn(tensor.shape, generator=torch.Generator().manual_seed(number)))
    save_policy(policy, tmp_path)
    read = PeftModel.from_pretrained(_same(make, policy), tmp_path)
    ids = torch.arange(3, 12)[None]
    with torch.no_grad():
        wanted = policy(input_ids=ids).logits
        torch.testing.assert_close(read(input_ids=ids).logits, wanted)
        served = _same(make, policy)
        PolicyWeights(served).load(tmp_path)
        torch.testing.assert_close(served(input_ids=ids).logits, wanted)


def _eager(make: Make) -> Any:
    """Make a model whose experts compute in any dtype; torch's grouped product does not support float64."""
    model: Any = make()
    model.set_experts_implementation("eager")
    return model


def _same(make: Make, policy: torch.nn.Module) -> Any:
    """Make the base model of `policy` anew."""
    base = _eager(make).to(policy.dtype)
    weights = policy.get_base_model().state_dict()  # type: ignore[operator]
    plain = {name.replace(".base_layer", ""): tensor for name, tensor in weights.items() if ".lora_" not in name}
    base.load_state_dict(plain)
    return base.eval()


def test_all_linear_is_what_the_papers_seven_names_are(tmp_path: Path) -> None:
    make = MODELS["qwen2"][0]
    for index, targets in enumerate(((), SEVEN)):
        torch.manual_seed(0)
        save_policy(policy_of(make, *targets), tmp_path / str(index))
    first, second = ({file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in "01")
    assert first == second
    assert json.loads(first["adapter_config.json"])["target_modules"] == sorted(SEVEN)


@pytest.mark.parametrize(
    ("name", "targets", "message"),
    [
        (
            "qwen2",
            ("q_proj", "kproj"),
            r"Qwen2ForCausalLM: kproj: no linear module .* exist: down_proj, gate_proj, k_pro",
        ),
        ("qwen2", ("q_proj", "lm_head"), r"lm_head shares its weight with model\.embed_tokens"),
        ("qwen2", ("embed_tokens",), "embed_tokens: no linear module"),
        (
            "phi3",
            tuple(SEVEN),
            r"(gate_proj|k_proj|up_proj|q_proj|v_proj).*: no linear module .* gate_up_proj, .*qkv_proj",
        ),
        (
            "mixtral",
            ("q_proj", "gate_proj"),
            "gate_proj: no linear module has this name; those that exist: k_proj, lm_",
        ),
        ("glm4_moe", ("q_proj", "down_proj"), r"PEFT takes .*down_proj for the experts, which are fused"),
    ],
)
def test_a_target_that_would_train_something_else_is_refused(name: str, targets: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=rf"policy\.lora\.targets: .*{message}"):
        policy_of(MODELS[name][0], *targets)


def test_a_model_without_linear_modules_is_refused() -> None:
    sizes = {"vocab_size": 31, "n_embd": 16, "n_layer": 1, "n_head": 2, "bos_token_id": 1, "eos_token_id": 2}
    with pytest.raises(ValueError, match=r"GPT2LMHeadModel: there is no linear module to adapt; set policy\.trained"):
        policy_of(lambda: hf.GPT2LMHeadModel(hf.GPT2Config(**sizes)))


def test_a_head_of_its_own_may_be_adapted() -> None:
    untied = lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**SIZES, tie_word_embeddings=False))  # noqa: E731
    assert adapted(policy_of(untied, "q_proj", "lm_head")) == {"q_proj", "lm_head"}
    assert adapted(policy_of(untied)) == SEVEN


@pytest.mark.parametrize("targets", [(), ("q_proj", "down_proj")])
def test_a_vision_tower_gets_no_adapter(targets: tuple[str, ...]) -> None:
    """Its projections have the names of the text model's."""
    tower = {"image_size": 28, "patch_size": 14, "num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2}
    sizes = hf.Gemma3Config(text_config={**SIZES, "head_dim": 8}, vision_config=tower, mm_tokens_per_image=4)
    names = set(trained_tensors(policy_of(lambda: hf.Gemma3ForConditionalGeneration(sizes), *targets)))
    assert names and all(".language_model.layers." in name for name in names)
