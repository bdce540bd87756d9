"""Counts of the parameters of a decoder of the Qwen2/Llama family, and of the FLOPs of an update or a generation.

Pure arithmetic on the sizes in a model's config.json, without torch. A multiply-add counts as 2 FLOPs; only matrix
products count (norms, softmax, rotary positions and the optimizer are under 1% at the sizes where it matters).
Attention counts what a causal kernel inside each sequence must do. LoRA counts as peft computes it (update.fold_adapter
is a trade for models where none of this matters).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tasks.core.config.policy import LoraSettings


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a decoder with grouped key-value heads and a gated feed-forward part."""

    layers: int
    width: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_width: int
    vocabulary: int
    tied: bool
    """Whether the head is the embedding matrix."""
    attention_bias: bool
    """Whether q, k and v have a bias (Qwen2)."""

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> "ModelShape":
        """Shape by the content of a config.json (transformers). Raises ValueError naming a size that is missing."""
        try:
            width, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
            return cls(
                layers=int(config["num_hidden_layers"]),
                width=width,
                feed_forward=int(config["intermediate_size"]),
                heads=heads,
                kv_heads=int(config.get("num_key_value_heads") or heads),
                head_width=int(config.get("head_dim") or width // heads),
                vocabulary=int(config["vocab_size"]),
                tied=bool(config.get("tie_word_embeddings", False)),
                attention_bias=config.get("model_type") == "qwen2" or bool(config.get("attention_bias", False)),
            )
        except KeyError as error:
            raise ValueError(f"model configuration: {error} is missing; cannot count parameters or FLOPs") from None

    @property
    def projections(self) -> dict[str, tuple[int, int]]:
        """(inputs, outputs) of the matrices of one layer, by transformers' names."""
        queries, keys = self.heads * self.head_width, self.kv_heads * self.head_width
        return {
            "q_proj": (self.width, queries),
            "k_proj": (self.width, keys),
            "v_proj": (self.width, keys),
            "o_proj": (queries, self.width),
            "gate_proj": (self.width, self.feed_forward),
            "up_proj": (self.width, self.feed_forward),
            "down_proj": (self.feed_forward, self.width),
        }


def parameters(shape: ModelShape) -> int:
    """All parameters of the base model: matrices, biases, norms, embedding and, unless tied, the head."""
    matrices = sum(inputs * outputs for inputs, outputs in shape.projections.values())
    biases = sum(shape.projections[name][1] for name in ("q_proj", "k_proj", "v_proj")) * shape.attention_bias
    vocabularies = shape.vocabulary * shape.width * (1 if shape.tied else 2)
    return shape.layers * (matrices + biases + 2 * shape.width) + shape.width + vocabularies


def adapter_parameters(shape: ModelShape, lora: LoraSettings) -> int:
    """Parameters of the LoRA matrices A and B of all targets in all layers."""
    return shape.layers * sum(
        lora.rank * (shape.projections[name][0] + shape.projections[name][1]) for name in lora.targets
    )


def value_head_widths(width: int) -> tuple[int, int]:
    """Widths of a critic's two hidden layers, by the model's hidden size: the paper's 5120-3072-2048-1 for 32B."""
    return max(1, round(width * 3072 / 5120)), max(1, round(width * 2048 / 5120))


def value_head_parameters(width: int) -> int:
    """Weights and biases of a critic's three linear layers."""
    wide, narrow = value_head_widths(width)
    return (width + 1) * wide + (wide + 1) * narrow + narrow + 1


def forward_flops(
    shape: ModelShape, lengths: Iterable[int], policy_tokens: int, lora: LoraSettings | None = None
) -> float:
    """One forward pass over sequences of `lengths` tokens, the head on `policy_tokens` of all these tokens only.

    Whether they are packed, padded away or in rows of their own changes nothing: no padding is counted.
    """
    sizes = list(lengths)
    adapter = 2.0 * adapter_parameters(shape, lora) * sum(sizes) if lora else 0.0
    return _matrices(shape) * sum(sizes) + adapter + _attention(shape, sizes) + _head(shape, policy_tokens)


def generation_flops(
    shape: ModelShape, lengths: Iterable[int], sampled_tokens: int, lora: LoraSettings | None = None
) -> float:
    """Generating episodes of `lengths` tokens, `sampled_tokens` of them in all, with a key-value cache that holds.

    Every token passes the model once (prefix caching over the turns); each evicted prefix costs a forward pass more.
    """
    return forward_flops(shape, lengths, sampled_tokens, lora)


def training_flops(
    shape: ModelShape,
    lengths: Iterable[int],
    policy_tokens: int,
    lora: LoraSettings | None,
    *,
    recompute: bool = False,
) -> float:
    """One forward and backward pass. `lora` None: all weights are trained.

    Frozen matrices need the gradient of their inputs only (as much as the forward pass), trained ones that of their
    weights too (twice as much); attention twice. `recompute` adds what activation checkpointing and the chunked head do
    again: leave it out for MFU (which is about useful work), put it in for the hours that a run takes.
    """
    sizes = list(lengths)
    forward = forward_flops(shape, sizes, policy_tokens, lora)
    matrices = _matrices(shape) * sum(sizes) + _head(shape, policy_tokens)
    adapter = 2.0 * adapter_parameters(shape, lora) * sum(sizes) if lora else matrices
    backward = matrices + (2 * adapter if lora else adapter) + 2 * _attention(shape, sizes)
    return forward + backward + (forward if recompute else 0.0)


def update_flops(
    shape: ModelShape,
    lengths: Iterable[int],
    policy_tokens: int,
    lora: LoraSettings | None,
    *,
    epochs: int,
    reference: bool = False,
    recompute: bool = False,
) -> float:
    """One LOOP update: old log-probs, log-probs of the base (`reference`: where needed), and `epochs` of training."""
    sizes = list(lengths)
    passes = forward_flops(shape, sizes, policy_tokens, lora)
    if reference:
        passes += forward_flops(shape, sizes, policy_tokens)
    return passes + epochs * training_flops(shape, sizes, policy_tokens, lora, recompute=recompute)


def _matrices(shape: ModelShape) -> float:
    """FLOPs per token of all layers' projections."""
    return 2.0 * shape.layers * sum(inputs * outputs for inputs, outputs in shape.projections.values())


def _head(shape: ModelShape, policy_tokens: int) -> float:
    return 2.0 * shape.width * shape.vocabulary * policy_tokens


def _attention(shape: ModelShape, lengths: Iterable[int]) -> float:
    """Scores and weighted values: token t of a sequence looks at t keys, itself included."""
    pairs = sum(length * (length + 1) / 2 for length in lengths)
    return 2.0 * 2.0 * shape.layers * shape.heads * shape.head_width * pairs
