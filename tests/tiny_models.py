"""The tiny Qwen2 of the tests, in one place; a test names only what is special about its own."""

from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

SIZES = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
}


def tiny_qwen2_config(**changes: Any) -> Qwen2Config:
    """Return the architecture, with `changes`."""
    return Qwen2Config(**{**SIZES, **changes})


def tiny_qwen2(seed: int = 0, **changes: Any) -> Qwen2ForCausalLM:
    """Return the model with new weights, which follow from the seed and the sizes alone."""
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(tiny_qwen2_config(**changes)).eval()
