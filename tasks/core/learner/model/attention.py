"""Attention over packed rollouts: each attends causally to itself only, and no [T, T] mask is ever made.

Measured on one core with the embedded policy (32 rollouts of 150 to 300 tokens, forward and backward): one call per
rollout 19,000 to 21,000 tok/s whatever the pack; a block-diagonal mask 10,000 (4 in a row) down to 2,000 (32 in a row);
length-sorted padded rows 21,000, but with padding. So the calls are made per rollout, inside a packed row.

Where the package flash-attn is installed, half-precision tensors on a GPU take its kernel for sequences of unequal
length, one call for the whole row. (Not run so far. Its layout is tested against the calls, which take 1.6 ms on an
H200 for 8,192 tokens of four rollouts forward and backward; flex_attention 1.8.)
"""

from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from tasks.core.policies.attention_keywords import Asked, additive, read_keywords

IMPLEMENTATION, _SINGLE = "packed_rollouts", "single_rollout"
_BLOCK = 1024
"""Queries whose scores exist at one time where a layer asks for more than SDPA gives, or for a window."""
Kernel = Callable[..., Tensor]


def use_packed_attention(model: nn.Module) -> None:
    """Make a transformers model attend within `rollout_lengths` (a keyword of its forward pass). Idempotent."""
    from transformers import AttentionInterface

    AttentionInterface.register(IMPLEMENTATION, packed_attention)
    model.set_attn_implementation(IMPLEMENTATION)  # type: ignore[operator]


def use_single_attention(model: nn.Module) -> None:
    """Make a transformers model attend within the row, which is one rollout. Idempotent.

    It needs no keyword of ours, which some models do not hand on to their layers.
    """
    from transformers import AttentionInterface

    AttentionInterface.register(_SINGLE, single_attention)
    model.set_attn_implementation(_SINGLE)  # type: ignore[operator]


def single_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **keywords: Any
) -> tuple[Tensor, None]:
    """`packed_attention` of a row that is one rollout."""
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
    scaling: float | None = None,
    **keywords: Any,
) -> tuple[Tensor, None]:
    """query [1, H, T, D], key and value [1, H_kv, T, D] -> [1, T, H, D] (transformers' attention interface).

    Raises ValueError for a keyword that is not understood.
    """
    asked = read_keywords(module, keywords)
    half = query.is_cuda and query.dtype in (torch.float16, torch.bfloat16)
    if half and asked.eager is None and (kernel := flash_kernel()) is not None:
        return varlen_attention(query, key, value, rollout_lengths, scaling, kernel, asked.window), None
    sizes = list(rollout_lengths)
    pieces = [
        _attend(module, heads, asked, scaling, keywords)
        for heads in zip(*(torch.split(heads, sizes, dim=2) for heads in (query, key, value)), strict=True)
    ]
    return torch.cat(pieces, dim=2).transpose(1, 2), None


def _attend(
    module: nn.Module, heads: tuple[Tensor, ...], asked: Asked, scaling: float | None, keywords: dict[str, Any]
) -> Tensor:
    """Query, key and value of one rollout of n positions -> [1, H, n, D]."""
    query, key, value = heads
    length = query.shape[2]
    window = asked.window if asked.window is not None and asked.window < length else None
    if asked.eager is None and window is None:
        return _sdpa(query, key, value, None, scaling)
    mixed = []
    for start, stop, first in _blocks(length, window):
        visible = _visible(stop - start, start - first, window, query.device)
        part = query[:, :, start:stop], key[:, :, first:stop], value[:, :, first:stop]
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


def _blocks(length: int, window: int | None) -> Iterator[tuple[int, int, int]]:
    """Yield (start, stop, first): queries start .. stop - 1 see no position before `first`, nor after their own."""
    size = max(_BLOCK, window or 0)
    for start in range(0, length, size):
        yield start, min(start + size, length), 0 if window is None else max(0, start - window + 1)


@lru_cache(maxsize=16)
def _visible(queries: int, before: int, window: int | None, device: torch.device) -> Tensor:
    """[1, 1, queries, before + queries] bool: what each query sees, with `before` keys ahead of the first's own."""
    with torch.inference_mode(False):
        own = torch.arange(before, before + queries, device=device)[:, None]
        keys = torch.arange(before + queries, device=device)
        visible = keys <= own if window is None else (keys <= own) & (keys > own - window)
        return visible[None, None]


def varlen_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lengths: tuple[int, ...],
    scaling: float | None,
    kernel: Kernel,
    window: int | None = None,
) -> Tensor:
    """The same by one call of `kernel`, which has the interface of flash-attn's `flash_attn_varlen_func`."""
    rows = (heads[0].transpose(0, 1) for heads in (query, key, value))
    starts, longest = _starts(lengths, query.device), max(lengths)
    near = {} if window is None else {"window_size": (window - 1, 0)}
    mixed = kernel(*rows, starts, starts, longest, longest, softmax_scale=scaling, causal=True, **near)
    return mixed[None]


@cache
def flash_kernel() -> Kernel | None:
    """flash-attn's kernel, None where it is not installed."""
    try:
        from flash_attn import flash_attn_varlen_func
    except ImportError:
        return None
    return flash_attn_varlen_func  # type: ignore[no-any-return]


@lru_cache(maxsize=8)
def _starts(lengths: tuple[int, ...], device: torch.device) -> Tensor:
    """[R + 1] int32 on the device, made once for all layers."""
    return torch.tensor([0, *lengths]).cumsum(0).to(device, torch.int32)
