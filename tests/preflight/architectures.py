"""Tiny random models of transformers' architectures, and what preflight's proof finds: docs/models/architectures.md.

python -m tests.preflight.architectures        (writes the page anew)
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

PAGE = Path(__file__).parents[2] / "docs" / "models" / "architectures.md"
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
_INTRODUCTION = """# Architectures

```sh
python -m tests.preflight.architectures     # writes this page; a test compares it row by row
```

This is what preflight's proof says of transformers' architectures, each as a tiny random model with a LoRA adapter that
is not zero. It asks whether log-probs of the learner and of the engine in this process are within 1e-4 of those of the
model's own forward pass, for rollouts on both sides of its windows. That pass has eager attention where transformers
lets one choose it (Falcon's is the one that it is loaded with, SDPA). Where float32 leaves the engine in doubt, all of
it is repeated in float64.

Before the base model itself, preflight takes a twin of it: its settings with a few narrow layers, one of each kind at
least, random float32 weights, and windows, chunks and original lengths of 16 to 64 positions. So it also sees what
rounding in bfloat16 hides and what lies thousands of positions away. The base model is then compared in its own dtype,
where a difference counts that is over 0.1 nats on average and over twice what one rounding of its embeddings does.

A base policy is supported when it passes this proof, not because it is on this page. `data/preflight.json` says how its
rollouts go through the learner.

- *Packed*: rollouts share forward passes.
- *One rollout to a pass*: where a pack would not be exact (recurrent layers, convolutions, ALiBi, rotary factors by
  length), or where the model does not hand on to its layers which rollout a position belongs to. *Own attention*: by
  the attention of the model's own file, not the learner's.
- *Cache of rows*: the engine's own key-value cache, many conversations to a pass.
- *Cache of its own*: transformers' cache for this model, one conversation to a pass, and each turn reads its
  conversation anew.

Ranks with `update.distributed.sharding: fsdp` read their parts of the base model by its own names of tensors. Of the
models below these have other names in their files, and are refused: Qwen3-MoE, Qwen3-Next, Mixtral, Granite hybrid,
GLM-4-MoE, DeepSeek-V3, Nemotron-H, MiniMax, Jamba, GPT-NeoX, and Gemma 3 with its tower. `sharding: replicated` trains
them, with the whole model on every rank.
"""


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


def page(rows: list[Row]) -> str:
    """Return the page, with a line for each row."""
    lines = [f"| {row.name} | {row.learner} | {row.engine} |" for row in rows]
    return "\n".join(
        [_INTRODUCTION, "| Architecture | Learner | Engine in this process |", "|---|---|---|", *lines, ""]
    )


def rows_of(text: str) -> list[Row]:
    """Return the rows of a page."""
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [Row(*line) for line in cells[1:]]


def quiet() -> None:
    """Silence the messages that these models cause in transformers."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    logging.disable(logging.WARNING)


if __name__ == "__main__":
    quiet()
    PAGE.write_text(page([examine(name, make) for name, make in ARCHITECTURES.items()]), encoding="utf-8")
