"""Tiny random models of transformers' architectures, and what preflight's proof finds: docs/models/index.md.

python -m tests.preflight.architectures        (writes the table anew)
"""

import logging
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from torch import nn
from transformers import PreTrainedModel

from tasks.core.config.policy import LoraSettings, PolicyConfig
from tasks.core.config.update import UpdateConfig
from tasks.core.engines.transformers.own_cache import OwnCacheEngine, in_process_engine
from tasks.core.learner.distributed import SINGLE
from tasks.core.learner.learner import prepare_forward
from tasks.core.learner.proofs import AnotherFunction, prove_passes
from tasks.core.policies.loading import load_base_model, save_policy, trainable_policy
from tasks.core.policies.positions import limited_context
from tasks.core.records.files import read_json, write_json
from tasks.preflight import shake_adapter
from tasks.preflight.engine_proof import prove_engine

PAGE = Path(__file__).parents[2] / "docs" / "models" / "index.md"
HEAD = "| Architecture | Learner | Engine in this process |\n|---|---|---|"
VOCABULARY, CONTEXT = 61, 256
_NOT_ADAPTED = ("out_proj", "dt_proj", "x_proj", "lm_head")
"""Projections of recurrent layers whose weights are read without their forward pass: PEFT refuses to adapt some, and
would adapt others without effect.
"""
_FEED_FORWARD = ("gate_proj", "up_proj", "down_proj")
"""Not adapted where there are experts, whose fused weights PEFT adapts in another way than plain LoRA."""


class Row(NamedTuple):
    """A line of the page."""

    name: str
    learner: str
    engine: str


COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
HEADS = {"head_dim": 8}
RECURRENT = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1, "mamba_expand": 2}
DELTA = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "layer_types": ["linear_attention", "full_attention"],
}
WINDOW = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}
FALCON = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
LATENT = {"kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 6}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 4,
    "long_factor": [8.0] * 4,
    "original_max_position_embeddings": 24,
    "factor": CONTEXT / 24,
}


def _of(family: str, config: str = "", **settings: Any) -> Callable[[], PreTrainedModel]:
    def make() -> PreTrainedModel:
        sizes = getattr(transformers, f"{config or family}Config")(**settings)
        model: PreTrainedModel = getattr(transformers, f"{family}ForCausalLM")(sizes)
        return model

    return make


_plain = partial(_of, **COMMON)

ARCHITECTURES: dict[str, Callable[[], PreTrainedModel]] = {
    "Qwen2": _plain("Qwen2"),
    "Qwen2, sliding windows": _plain("Qwen2", use_sliding_window=True, sliding_window=8, max_window_layers=1),
    "Qwen3": _plain("Qwen3", **HEADS),
    "Qwen3-MoE": _plain("Qwen3Moe", **HEADS, **EXPERTS, num_experts=4),
    "Qwen3-Next": _plain("Qwen3Next", **HEADS, **DELTA, **EXPERTS, num_experts=4, shared_expert_intermediate_size=16),
    "Qwen3.5": _plain("Qwen3_5", "Qwen3_5Text", **HEADS, **DELTA),
    "Llama": _plain("Llama"),
    "Llama, dynamic NTK": _plain("Llama", rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 8.0}),
    "Llama 4 text": _plain(
        "Llama4",
        "Llama4Text",
        **HEADS,
        attention_chunk_size=16,
        num_local_experts=2,
        interleave_moe_layer_step=1,
        intermediate_size_mlp=48,
        layer_types=["chunked_attention", "full_attention"],
    ),
    "Mistral": _plain("Mistral", sliding_window=8),
    "Mixtral": _plain("Mixtral", num_local_experts=4, num_experts_per_tok=2),
    "Gemma": _plain("Gemma", **HEADS),
    "Gemma 2": _plain(
        "Gemma2",
        **HEADS,
        sliding_window=8,
        final_logit_softcapping=3.0,
        attn_logit_softcapping=2.0,
        query_pre_attn_scalar=8,
    ),
    "Gemma 3 text": _plain("Gemma3", "Gemma3Text", **HEADS, **WINDOW, query_pre_attn_scalar=8),
    "gpt-oss": _plain("GptOss", **HEADS, sliding_window=8, num_local_experts=2, num_experts_per_tok=1),
    "Phi": _plain("Phi"),
    "Phi-3 and 4": _plain("Phi3"),
    "Phi-3 and 4, LongRoPE beyond the original length": _plain(
        "Phi3", original_max_position_embeddings=24, rope_parameters=LONGROPE
    ),
    "Granite": _plain("Granite", logits_scaling=8.0, attention_multiplier=0.2, residual_multiplier=0.5),
    "Granite hybrid": _plain(
        "GraniteMoeHybrid",
        **MAMBA,
        mamba_chunk_size=16,
        layer_types=["mamba", "attention"],
        num_local_experts=4,
        num_experts_per_tok=2,
        shared_intermediate_size=16,
        logits_scaling=4.0,
    ),
    "Cohere": _plain("Cohere", logit_scale=0.25),
    "Cohere 2": _plain("Cohere2", **WINDOW, logit_scale=0.25),
    "GLM": _plain("Glm", **HEADS),
    "GLM-4": _plain("Glm4", **HEADS),
    "GLM-4-MoE": _plain(
        "Glm4Moe", **HEADS, **EXPERTS, n_routed_experts=4, n_group=1, topk_group=1, first_k_dense_replace=1
    ),
    "DeepSeek-V3": _of(
        "DeepseekV3",
        **{**COMMON, **EXPERTS, **LATENT, "num_key_value_heads": 4},
        n_routed_experts=4,
        n_group=2,
        topk_group=1,
        n_shared_experts=1,
        first_k_dense_replace=1,
    ),
    "OLMo 2": _plain("Olmo2"),
    "OLMo 3": _plain("Olmo3", **WINDOW),
    "StableLM": _plain("StableLm"),
    "Nemotron": _plain("Nemotron"),
    "Nemotron-H": _plain(
        "NemotronH",
        **HEADS,
        layers_block_type=["mamba", "attention"],
        mamba_num_heads=4,
        mamba_head_dim=8,
        n_groups=2,
        ssm_state_size=8,
        chunk_size=16,
    ),
    "SmolLM3": _plain("SmolLM3"),
    "ERNIE 4.5": _plain("Ernie4_5"),
    "Seed-OSS": _plain("SeedOss", **HEADS),
    "MiniMax": _plain(
        "MiniMax",
        **HEADS,
        num_local_experts=2,
        num_experts_per_tok=1,
        layer_types=["linear_attention", "full_attention"],
        block_size=16,
    ),
    "GPT-NeoX": _plain("GPTNeoX"),
    "LFM2": _plain("Lfm2", layer_types=["conv", "full_attention"]),
    "Falcon-H1": _plain(
        "FalconH1",
        mamba_d_ssm=32,
        mamba_n_heads=4,
        mamba_d_head=8,
        mamba_d_state=8,
        mamba_chunk_size=16,
        lm_head_multiplier=0.3,
    ),
    "Bamba": _plain("Bamba", **MAMBA, mamba_chunk_size=16, attn_layer_indices=[1]),
    "Jamba": _plain(
        "Jamba",
        mamba_d_state=8,
        mamba_d_conv=4,
        mamba_expand=2,
        mamba_dt_rank=4,
        num_experts=2,
        attn_layer_period=2,
        attn_layer_offset=1,
        use_mamba_kernels=False,
    ),
    "Mamba": _of("Mamba", **RECURRENT),
    "Mamba 2": _of("Mamba2", **RECURRENT, num_heads=8, head_dim=8, n_groups=2, chunk_size=16),
    "RecurrentGemma": _of(
        "RecurrentGemma",
        **{**FALCON, "num_hidden_layers": 3},
        intermediate_size=96,
        lru_width=32,
        attention_window_size=8,
    ),
    "Bloom (ALiBi)": _of("Bloom", vocab_size=VOCABULARY, hidden_size=32, n_layer=2, n_head=4),
    "Falcon": _of("Falcon", **FALCON, new_decoder_architecture=True, num_kv_heads=2),
    "Falcon, ALiBi": _of("Falcon", **FALCON, alibi=True, multi_query=False, new_decoder_architecture=False),
}
_LEARNER = {
    "packed": "packed",
    "single": "one rollout to a pass",
    "single_eager": "one rollout to a pass, own attention",
}


def examine(name: str, make: Callable[[], PreTrainedModel]) -> Row:
    """Prove an architecture as preflight proves a base policy."""
    with tempfile.TemporaryDirectory() as folder:
        base, config = Path(folder) / "base", write_model(make, Path(folder))
        checkpoint = Path(folder) / "shaken"
        learner = _attempt(lambda: _learner(base, config, checkpoint))
        engine = _attempt(lambda: _engine(base, config, checkpoint))
    return Row(name, learner, engine)


def write_model(make: Callable[[], PreTrainedModel], folder: Path) -> PolicyConfig:
    """Write base model and adapter into `folder`; return the settings to load them with."""
    torch.manual_seed(0)
    model = make()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if (
                weight.ndim > 1 and "A_log" not in name and "conv" not in name
            ):  # fresh weights give nearly uniform tokens
                weight.normal_(std=2.0 if "sink" in name else 0.35)
            if "sink" in name:
                weight.normal_(std=2.0)
    model.save_pretrained(folder / "base")
    file = folder / "base" / "config.json"
    write_json(file, limited_context(read_json(file), CONTEXT))
    adapted = {part.rpartition(".")[2] for part, layer in model.named_modules() if isinstance(layer, nn.Linear)}
    mixture = any("expert" in part for part, _ in model.named_modules())
    left_out = (*_NOT_ADAPTED, *(_FEED_FORWARD if mixture else ()))
    targets = tuple(sorted(one for one in adapted if one.endswith(("proj", "value")) and one not in left_out))
    lora = LoraSettings(rank=2, alpha=4, targets=targets or ("in_proj",))
    config = PolicyConfig(source="base", lora=lora, device="cpu")
    save_policy(trainable_policy(model.requires_grad_(False), config, None, seed=0), folder / "untrained")
    shake_adapter(folder / "untrained", folder / "shaken", seed=0)
    return config


def _learner(base: Path, config: PolicyConfig, checkpoint: Path) -> str:
    policy = trainable_policy(load_base_model(base, config), config, checkpoint, seed=0)
    prepare_forward(policy, UpdateConfig(), SINGLE)
    return _LEARNER[prove_passes(policy, UpdateConfig())]


def _engine(base: Path, config: PolicyConfig, checkpoint: Path) -> str:
    prove_engine(base, config, checkpoint)
    engine = in_process_engine(load_base_model(base, config))
    return "cache of its own" if isinstance(engine, OwnCacheEngine) else "cache of rows"


def _attempt(prove: Callable[[], str]) -> str:
    try:
        return prove()
    except AnotherFunction:
        return "refused: another function"
    except ValueError as error:
        return f"refused: {str(error).partition(': ')[2].rstrip('.')}"


def with_rows(page: str, rows: list[Row]) -> str:
    """Return the page with these rows below the head of its table."""
    lines = [f"| {row.name} | {row.learner} | {row.engine} |" for row in rows]
    return "\n".join([f"{page.partition(HEAD)[0]}{HEAD}", *lines, ""])


def rows_of(page: str) -> list[Row]:
    """Return the rows of the page's table, which is its last one."""
    return [Row(*line.strip("| ").split(" | ")) for line in page.partition(HEAD)[2].split("\n") if line]


def quiet() -> None:
    """Silence the messages that these models cause in transformers."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    logging.disable(logging.WARNING)


if __name__ == "__main__":
    quiet()
    found = [examine(name, make) for name, make in ARCHITECTURES.items()]
    PAGE.write_text(with_rows(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
