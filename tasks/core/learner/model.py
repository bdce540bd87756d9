"""The policy as the learner runs it: attention in packed rows, LoRA's forward pass, checkpointed layers, and its
passes.

Rollouts go through the body packed side by side, or one to a pass. A pack is exact where only attention joins
positions, and attention knows nothing of them except their order. Other models (recurrent layers, convolutions, ALiBi,
rotary factors by length) take one rollout to a pass: then their forward pass is their own, whatever it does. `proofs`
proves which way is exact.
"""

from collections.abc import Callable, Iterator
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from tasks.core.policies.layers import Asked, add_low_rank, additive, read_keywords

if TYPE_CHECKING:
    from peft.tuners.lora import Linear as LoraLinear


from tasks.core.policies.layers import foreign_layer, takes_attention, use_own_attention
from tasks.core.policies.positions import fixed_positions, rotary_by_length
from tasks.core.records.training import Passes


def decoder_layers(policy: nn.Module) -> list[nn.Module]:
    """Return the layers of a transformers decoder, with or without peft's wrapping.

    Raises ValueError for a model whose text part has no list of layers.
    """
    model: Any = policy.get_base_model() if hasattr(policy, "get_base_model") else policy  # type: ignore[operator]
    text = model.get_decoder()
    layers: list[nn.Module] = []
    for part in text.children():
        if isinstance(part, nn.ModuleList) and len(part) > len(layers):
            layers = list(part)
    if not layers:
        raise ValueError(f"{type(model).__name__}: no list of decoder layers to shard or to checkpoint layer by layer")
    return layers


def checkpoint_activations(policy: nn.Module) -> None:
    """Make each decoder layer drop its activations until its backward pass. Idempotent.

    transformers' own switch acts in training mode only, and the policy stays in evaluation mode so that the first
    importance weights are 1. On a sharded policy the layer is gathered again before it is recomputed.
    """
    for layer in decoder_layers(policy):
        if "forward" not in layer.__dict__:
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False)  # type: ignore[method-assign]


IMPLEMENTATION, _SINGLE = "packed_rollouts", "single_rollout"
_BLOCK = 1024
"""Queries per block of scores, where a layer has a window or asks for more than SDPA offers."""
Kernel = Callable[..., Tensor]


def use_packed_attention(model: nn.Module) -> None:
    """Make a transformers model attend within `rollout_lengths` (a keyword of its forward pass). Idempotent."""
    from transformers import AttentionInterface

    AttentionInterface.register(IMPLEMENTATION, packed_attention)
    model.set_attn_implementation(IMPLEMENTATION)  # type: ignore[operator]


def use_single_attention(model: nn.Module) -> None:
    """Make a transformers model attend within the row, which is one rollout. Idempotent.

    It needs no keyword of ours, which some models do not pass on to their layers.
    """
    from transformers import AttentionInterface

    AttentionInterface.register(_SINGLE, single_attention)
    model.set_attn_implementation(_SINGLE)  # type: ignore[operator]


def single_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **keywords: Any
) -> tuple[Tensor, None]:
    """Apply `packed_attention` to a row that is one rollout."""
    lengths = (query.shape[2],)
    return packed_attention(module, query, key, value, attention_mask, rollout_lengths=lengths, **keywords)


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    rollout_lengths: tuple[int, ...],
    rollouts_behind: tuple[int, ...] | None = None,
    scaling: float | None = None,
    **keywords: Any,
) -> tuple[Tensor, None]:
    """Map query [1, H, T, D], key and value [1, H_kv, T, D] to [1, T, H, D] (transformers' attention interface).

    `rollouts_behind`: for each piece of the row the one whose keys it sees before its own, -1 for none (`Pass.behind`).
    Raises ValueError for an unknown keyword.
    """
    asked = read_keywords(module, keywords)
    half = query.is_cuda and query.dtype in (torch.float16, torch.bfloat16)
    if half and asked.eager is None and (kernel := flash_kernel()) is not None:
        seen = rollout_lengths
        if rollouts_behind is not None and max(rollouts_behind) >= 0:
            keys, values = (_seen(heads, rollout_lengths, rollouts_behind) for heads in (key, value))
            key, value, seen = torch.cat(keys, 2), torch.cat(values, 2), tuple(part.shape[2] for part in keys)
        return varlen_attention(query, key, value, rollout_lengths, scaling, kernel, asked.window, seen), None
    behind = rollouts_behind or (-1,) * len(rollout_lengths)
    queries = torch.split(query, list(rollout_lengths), dim=2)
    seen_by = (_seen(heads, rollout_lengths, behind) for heads in (key, value))
    pieces = [_attend(module, heads, asked, scaling, keywords) for heads in zip(queries, *seen_by, strict=True)]
    return torch.cat(pieces, dim=2).transpose(1, 2), None


def _seen(heads: Tensor, lengths: tuple[int, ...], behind: tuple[int, ...]) -> list[Tensor]:
    """Return the keys (or values) that each piece sees: its own, after those of the piece that it is behind."""
    own = torch.split(heads, list(lengths), dim=2)
    return [part if place < 0 else torch.cat([own[place], part], 2) for part, place in zip(own, behind, strict=True)]


def _attend(
    module: nn.Module, heads: tuple[Tensor, ...], asked: Asked, scaling: float | None, keywords: dict[str, Any]
) -> Tensor:
    """Map query of the last n of m positions, key and value of all, to [1, H, n, D]."""
    query, key, value = heads
    length = key.shape[2]
    before = length - query.shape[2]
    window = asked.window if asked.window is not None and asked.window < length else None
    if asked.eager is None and window is None and not before:
        return _sdpa(query, key, value, None, scaling)
    mixed = []
    for start, stop, first in _blocks(before, length, window):
        visible = _visible(stop - start, start - first, window, query.device)
        part = query[:, :, start - before : stop - before], key[:, :, first:stop], value[:, :, first:stop]
        if asked.eager is None:
            mixed.append(_sdpa(*part, visible, scaling))
        else:
            mask = additive(visible, query.dtype)
            mixed.append(asked.eager(module, *part, mask, scaling=scaling, **keywords)[0].transpose(1, 2))
    return torch.cat(mixed, dim=2)


def _sdpa(query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None, scaling: float | None) -> Tensor:
    grouped = query.shape[1] != key.shape[1]
    return scaled_dot_product_attention(
        query, key, value, attn_mask=visible, is_causal=visible is None, scale=scaling, enable_gqa=grouped
    )


def _blocks(before: int, length: int, window: int | None) -> Iterator[tuple[int, int, int]]:
    """Yield (start, stop, first): queries start .. stop - 1 see no position before `first` and none after their own.

    The first query is at `before`, the last at `length` - 1.
    """
    size = max(_BLOCK, window or 0)
    for start in range(before, length, size):
        yield start, min(start + size, length), 0 if window is None else max(0, start - window + 1)


@lru_cache(maxsize=16)
def _visible(queries: int, before: int, window: int | None, device: torch.device) -> Tensor:
    """Return [1, 1, queries, before + queries] bool: the keys each query sees; `before` keys precede the queries."""
    with torch.inference_mode(False):
        positions = torch.arange(before, before + queries, device=device)[:, None]
        keys = torch.arange(before + queries, device=device)
        visible = keys <= positions if window is None else (keys <= positions) & (keys > positions - window)
        return visible[None, None]


def varlen_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lengths: tuple[int, ...],
    scaling: float | None,
    kernel: Kernel,
    window: int | None = None,
    seen: tuple[int, ...] | None = None,
) -> Tensor:
    """Compute `packed_attention` by one call of `kernel`, whose interface is flash-attn's `flash_attn_varlen_func`.

    `seen`: the keys of each piece, of which its queries are the last; None: as many as queries.
    """
    rows = (heads[0].transpose(0, 1) for heads in (query, key, value))
    starts, seen = _starts(lengths, query.device), seen or lengths
    near = {} if window is None else {"window_size": (window - 1, 0)}
    limits = starts, _starts(seen, query.device), max(lengths), max(seen)
    mixed = kernel(*rows, *limits, softmax_scale=scaling, causal=True, **near)
    return mixed[None]


@cache
def flash_kernel() -> Kernel | None:
    """Return flash-attn's kernel, or None where it is not installed."""
    try:
        from flash_attn import flash_attn_varlen_func
    except ImportError:
        return None
    return flash_attn_varlen_func  # type: ignore[no-any-return]


@lru_cache(maxsize=8)
def _starts(lengths: tuple[int, ...], device: torch.device) -> Tensor:
    """Return the rollouts' starts and the end, [R + 1] int32 on the device, made once for all layers."""
    return torch.tensor([0, *lengths]).cumsum(0).to(device, torch.int32)


Combine = Callable[[Any, Tensor, Tensor, Tensor], Tensor]
"""(base layer, states [..., d_in], A [r, d_in], s B [d_out, r]) -> [..., d_out]"""


def fold_adapter(policy: nn.Module) -> None:
    """Make the LoRA layers of `policy` (if it has any) compute with folded weights. Idempotent."""
    for layer in _own_forward(policy):
        if layer.weight.dtype == _adapter_dtype(layer):
            layer.forward = _combined(layer, _folded)  # type: ignore[method-assign]


def narrow_adapter(policy: nn.Module) -> None:
    """Make LoRA layers over weights of lower precision multiply in it (`lora_product`). Idempotent."""
    for layer in _own_forward(policy):
        plain = type(layer.get_base_layer()) is nn.Linear
        if plain and layer.weight.dtype.itemsize < _adapter_dtype(layer).itemsize:
            layer.forward = _combined(layer, _narrow)  # type: ignore[method-assign]


def _own_forward(policy: nn.Module) -> "list[LoraLinear]":
    """Return the LoRA layers that still compute as in peft."""
    from peft.tuners.lora import Linear as LoraLinear

    return [
        module for module in policy.modules() if isinstance(module, LoraLinear) and "forward" not in module.__dict__
    ]


def _adapter_dtype(layer: "LoraLinear") -> torch.dtype:
    (name,) = layer.active_adapters
    weight: Any = layer.lora_A[name].weight
    dtype: torch.dtype = weight.dtype
    return dtype


def _combined(layer: "LoraLinear", combine: Combine) -> Any:
    """Return a forward pass of `layer` by `combine`, or by peft's own while the adapter is switched off or merged."""
    apart = layer.forward

    def forward(states: Tensor, *arguments: Any, **settings: Any) -> Tensor:
        """Map [..., d_in] to [..., d_out]."""
        (name,) = layer.active_adapters
        if layer.disable_adapters or layer.merged:
            return apart(states, *arguments, **settings)
        down: Any = layer.lora_A[name].weight
        up: Any = layer.lora_B[name].weight
        return combine(layer.get_base_layer(), states, down, up * layer.scaling[name])

    return forward


def _folded(base: Any, states: Tensor, down: Tensor, up: Tensor) -> Tensor:
    return linear(states, torch.addmm(base.weight, up, down), base.bias)


def _narrow(base: Any, states: Tensor, down: Tensor, up: Tensor) -> Tensor:
    return add_low_rank(base(states), states, down, up)


WAYS: tuple[Passes, ...] = ("packed", "single", "single_eager")
"""From the fastest to the slowest."""
_ATTENTION: dict[Passes, Callable[[Any], None]] = {
    "packed": use_packed_attention,
    "single": use_single_attention,
    "single_eager": use_own_attention,
}
_WAY = "rollouts_per_pass"
_LONGEST = "longest_rollout"


def language_model(policy: nn.Module) -> Any:
    """Return the transformers model of `policy`, with or without peft's wrapping."""
    return policy.get_base_model() if hasattr(policy, "get_base_model") else policy  # type: ignore[operator]


def use_passes(policy: nn.Module, way: Passes | None) -> None:
    """Make the forward passes of `policy` go this `way`; None: the way that its layers suggest. Idempotent."""
    model = language_model(policy)
    chosen = suggested(policy) if way is None else way
    _ATTENTION[chosen](model)
    vars(model)[_WAY] = chosen
    text = model.config.get_text_config().to_dict()
    vars(model)[_LONGEST] = None if rotary_by_length(text) else fixed_positions(text)


def suggested(policy: nn.Module) -> Passes:
    """Return the fastest way that the layers of `policy` allow, judged by its config."""
    model = language_model(policy)
    if not takes_attention(model):
        return "single_eager"
    by_length = rotary_by_length(model.config.get_text_config().to_dict())
    return "single" if by_length or foreign_layer(model) else "packed"


def is_packed(policy: nn.Module) -> bool:
    """Return whether rollouts share forward passes."""
    way: Passes = vars(language_model(policy)).get(_WAY, "packed")
    return way == "packed"


def pack_capacity(policy: nn.Module, tokens_per_pack: int) -> int:
    """Return the positions of a pack, or 1, which gives packs of one rollout or pair, where passes are not shared."""
    return tokens_per_pack if is_packed(policy) else 1


def known_positions(model: Any) -> int | None:
    """Return the length of a rollout beyond which rotary factors would depend on it; None: there is no limit."""
    longest: int | None = vars(model).get(_LONGEST)
    return longest
