"""The embedded policy's network: a tiny Qwen2 whose attention starts as a copying machine."""

from typing import TYPE_CHECKING

import torch
from torch import nn

from tasks.core.config.section import Section

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM


class TinyQwen2(Section):
    """Sizes of the embedded policy. Every attention back end of vLLM accepts heads of 64."""

    layers: int = 2
    width: int = 128
    heads: int = 2
    feed_forward: int = 256
    context_length: int = 2048


EMBEDDING_STD = 0.1
COPY_SCALE = 0.5
RESIDUAL_STD = 0.02


def new_model(sizes: TinyQwen2, vocabulary: int, eos_token_id: int, pad_token_id: int, seed: int) -> "Qwen2ForCausalLM":
    """Return an untrained model in float32, drawn from `seed` alone.

    Each attention layer writes what it attends to back into the residual stream unchanged (V orthonormal, O its
    transpose, scaled), so that the model only has to learn WHERE to look before it can copy a name. Without it, a model
    of this size hardly learns to copy at all.
    """
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=sizes.width,
        intermediate_size=sizes.feed_forward,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.heads,
        max_position_embeddings=sizes.context_length,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=eos_token_id,
        pad_token_id=pad_token_id,
    )
    model = Qwen2ForCausalLM(config)
    _initialise(model, torch.Generator().manual_seed(seed))
    return model


@torch.no_grad()
def _initialise(model: "Qwen2ForCausalLM", generator: torch.Generator) -> None:
    width = model.config.hidden_size
    for name, weight in model.named_parameters():
        if "norm" in name:
            weight.fill_(1.0)
        elif name.endswith("bias"):
            weight.zero_()
        elif "embed_tokens" in name:
            weight.normal_(0.0, EMBEDDING_STD, generator=generator)
        elif "down_proj" in name:
            weight.normal_(0.0, RESIDUAL_STD, generator=generator)
        else:
            weight.normal_(0.0, width**-0.5, generator=generator)
    for layer in model.model.layers:
        values = nn.init.orthogonal_(layer.self_attn.v_proj.weight, generator=generator)
        layer.self_attn.o_proj.weight.copy_(COPY_SCALE * values.T)
