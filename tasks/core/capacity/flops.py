"""Counts of a decoder's parameters (Qwen and Llama families), and of the FLOPs of an update or a generation.

Pure arithmetic on the sizes in a model's config.json, without torch. A multiply-add counts as 2 FLOPs; only matrix
products count (norms, softmax, rotary positions and the optimizer are under 1% at the sizes where it matters).
Attention counts what a causal kernel inside each sequence must do. LoRA counts as peft computes it (update.fold_adapter
is a trade-off for models where none of this matters).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tasks.core.config.policy import ALL_LINEAR, LoraSettings
from tasks.core.config.update import value_head_widths

Matrices = dict[str, tuple[int, int]]
"""(inputs, outputs) of matrices, by transformers' names."""
CHUNK = 64
"""Tokens that the gated delta rule processes at a time."""


@dataclass(frozen=True)
class LinearAttention:
    """Sizes of the layers with linear attention of a hybrid model: the gated delta rule of Qwen3.5 and 3.6."""

    layers: int
    key_heads: int
    key_width: int
    """Width of a key head."""
    value_heads: int
    value_width: int
    """Width of a value head."""
    kernel: int
    """Positions that the convolution before it sees."""

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> "LinearAttention | None":
        """Return the sizes, or None for a model whose layers have softmax attention only."""
        layers = list(config.get("layer_types") or ()).count("linear_attention")
        if not layers:
            return None
        return cls(
            layers=layers,
            key_heads=int(config["linear_num_key_heads"]),
            key_width=int(config["linear_key_head_dim"]),
            value_heads=int(config["linear_num_value_heads"]),
            value_width=int(config["linear_value_head_dim"]),
            kernel=int(config["linear_conv_kernel_dim"]),
        )

    @property
    def keys(self) -> int:
        return self.key_heads * self.key_width

    @property
    def values(self) -> int:
        return self.value_heads * self.value_width

    def projections(self, width: int) -> Matrices:
        """Return the matrices of one layer of a model of this hidden size, without its feed-forward part."""
        return {
            "in_proj_qkv": (width, 2 * self.keys + self.values),
            "in_proj_z": (width, self.values),
            "in_proj_b": (width, self.value_heads),
            "in_proj_a": (width, self.value_heads),
            "out_proj": (self.values, width),
        }

    @property
    def small_parameters(self) -> int:
        """Return the parameters of one layer outside its matrices: convolution, decay, step and the norm of a head."""
        return (2 * self.keys + self.values) * self.kernel + 2 * self.value_heads + self.value_width

    @property
    def flops_per_token(self) -> float:
        """Return FLOPs of one layer's rule: within chunks as causal attention, between chunks through the state."""
        within = 2.0 * CHUNK * self.value_heads * (self.key_width + self.value_width)
        return within + 3 * 2.0 * self.value_heads * self.key_width * self.value_width


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
    head_norms: bool = False
    """Whether queries and keys have a norm for each head (Qwen3 and later)."""
    gated: bool = False
    """Whether q_proj also outputs a gate on attention's result (Qwen3.5)."""
    linear: LinearAttention | None = None
    """The layers with linear attention, if there are any."""

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> "ModelShape":
        """Return the shape in a config.json's content (transformers).

        Raises ValueError naming a size that is missing.
        """
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
                head_norms=str(config.get("model_type", "")).startswith("qwen3"),
                gated=bool(config.get("attn_output_gate", False)),
                linear=LinearAttention.of_config(config),
            )
        except KeyError as error:
            raise ValueError(f"model configuration: {error} is missing; cannot count parameters or FLOPs") from None

    @property
    def softmax_layers(self) -> int:
        """Return the number of layers with softmax attention, which have keys and values to cache."""
        return self.layers - (self.linear.layers if self.linear else 0)

    @property
    def projections(self) -> Matrices:
        """Return the matrices of one layer with softmax attention."""
        queries, keys = self.heads * self.head_width, self.kv_heads * self.head_width
        attention = {
            "q_proj": (self.width, queries * (1 + self.gated)),
            "k_proj": (self.width, keys),
            "v_proj": (self.width, keys),
            "o_proj": (queries, self.width),
        }
        return attention | self._feed_forward_projections

    @property
    def _feed_forward_projections(self) -> Matrices:
        return {
            "gate_proj": (self.width, self.feed_forward),
            "up_proj": (self.width, self.feed_forward),
            "down_proj": (self.feed_forward, self.width),
        }

    def layer_kinds(self) -> Iterator[tuple[int, Matrices]]:
        """Yield (number of layers, matrices of one of them) of both kinds."""
        yield self.softmax_layers, self.projections
        if self.linear:
            yield self.linear.layers, self.linear.projections(self.width) | self._feed_forward_projections

    @property
    def matrix_parameters(self) -> int:
        """Return the parameters of the matrices of all layers."""
        return sum(layers * _size(matrices) for layers, matrices in self.layer_kinds())


def parameters(shape: ModelShape) -> int:
    """Return all parameters of the base model: matrices, biases, norms, embedding and, unless tied, the head."""
    biases = sum(shape.projections[name][1] for name in ("q_proj", "k_proj", "v_proj")) * shape.attention_bias
    softmax = shape.softmax_layers * (biases + 2 * shape.head_width * shape.head_norms)
    linear = shape.linear.layers * shape.linear.small_parameters if shape.linear else 0
    vocabularies = shape.vocabulary * shape.width * (1 if shape.tied else 2)
    norms = (2 * shape.layers + 1) * shape.width
    return shape.matrix_parameters + softmax + linear + norms + vocabularies


def adapter_parameters(shape: ModelShape, lora: LoraSettings) -> int:
    """Return the parameters of the LoRA matrices A and B of all targets in all layers.

    Raises ValueError for a target whose size a plan does not know.
    """
    known = {name for _, matrices in shape.layer_kinds() for name in matrices}
    targets = known if lora.targets == ALL_LINEAR else set(lora.targets)
    if targets - known:
        raise ValueError(f"policy.lora.targets: the plan does not know the size of {min(targets - known)}")
    return sum(
        layers * lora.rank * sum(sum(sizes) for name, sizes in matrices.items() if name in targets)
        for layers, matrices in shape.layer_kinds()
    )


def value_head_parameters(width: int) -> int:
    """Return the weights and biases of a critic's three linear layers."""
    wide, narrow = value_head_widths(width)
    return (width + 1) * wide + (wide + 1) * narrow + narrow + 1


def forward_flops(
    shape: ModelShape, lengths: Iterable[int], policy_tokens: int, lora: LoraSettings | None = None
) -> float:
    """Return FLOPs of a forward pass over sequences of `lengths` tokens, with the head on `policy_tokens` of them only.

    The result is the same whether they are packed, unpadded or in rows of their own: no padding is counted. It is that
    of generating them, too, if no cache is evicted: every token passes the model once.
    """
    sizes = list(lengths)
    adapter = 2.0 * adapter_parameters(shape, lora) * sum(sizes) if lora else 0.0
    return _matrices(shape) * sum(sizes) + adapter + _attention(shape, sizes) + _head(shape, policy_tokens)


def training_flops(
    shape: ModelShape,
    lengths: Iterable[int],
    policy_tokens: int,
    lora: LoraSettings | None,
    *,
    recompute: bool = False,
) -> float:
    """Return FLOPs of one forward and backward pass. `lora` None: all weights are trained.

    Frozen matrices need the gradient of their inputs only (as much as the forward pass), trained matrices that of their
    weights too (twice as much); attention twice. `recompute` adds what activation checkpointing and the chunked head
    compute again: omit it for MFU (which is about useful work), include it for the hours that a run takes.
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
    values_first: bool = False,
) -> float:
    """Return FLOPs of a LOOP update: old log-probs, the base's log-probs (if `reference`), and `epochs` of training.

    `values_first`: what shares a loss does not fit one pass, so each epoch passes forward once more.
    """
    sizes = list(lengths)
    passes = (1 + epochs * values_first) * forward_flops(shape, sizes, policy_tokens, lora)
    if reference:
        passes += forward_flops(shape, sizes, policy_tokens)
    return passes + epochs * training_flops(shape, sizes, policy_tokens, lora, recompute=recompute)


def _matrices(shape: ModelShape) -> float:
    """Return FLOPs per token of all layers' projections."""
    return 2.0 * shape.matrix_parameters


def _size(matrices: Matrices) -> int:
    return sum(inputs * outputs for inputs, outputs in matrices.values())


def _head(shape: ModelShape, policy_tokens: int) -> float:
    return 2.0 * shape.width * shape.vocabulary * policy_tokens


def _attention(shape: ModelShape, lengths: Iterable[int]) -> float:
    """Return FLOPs of scores and weighted values, and of the linear layers.

    Token t of a sequence attends to t keys, itself included.
    """
    sizes = list(lengths)
    pairs = sum(length * (length + 1) / 2 for length in sizes)
    softmax = 2.0 * 2.0 * shape.softmax_layers * shape.heads * shape.head_width * pairs
    return softmax + (shape.linear.layers * shape.linear.flops_per_token * sum(sizes) if shape.linear else 0.0)
