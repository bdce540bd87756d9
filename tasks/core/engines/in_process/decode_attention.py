"""Attention for a decoding step: one read of the cache for all rows, mostly without reading padding.

A step takes as long as reading the cache. Conversations differ in length, and a few very long ones would make every row
be read to their length. So all rows are read up to a length that suffices for most, and the few longer rows are read
again, whole. With 144 rows of the embedded policy this takes about half the memory traffic of one read to the longest
row.

On a CPU torch's kernel is slow for single queries in lower precision: 96 rows of 400 positions (SmolLM2's 9 heads over
3) take 27 ms a layer in bfloat16 on an AMD EPYC core. Plain products in float32 take 4.4 ms and round only once.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from tasks.core.policies.attention_keywords import additive, read_keywords

IMPLEMENTATION = "decode_rows"
_COPY_COST = 3
"""Rows read by index are copied: read, written, read again."""


class Reading(NamedTuple):
    """How one step reads the cache."""

    short: int
    """All rows read positions 0 .. short - 1."""
    long: Tensor
    """[N] int64: these longer rows are read again, to the end."""


def plan_reading(lengths: np.ndarray, device: torch.device) -> Reading:
    """Return the cheapest reading for rows of these [B] lengths (0: the row's result is not used)."""
    ordered = np.sort(lengths)
    longer = len(lengths) - np.searchsorted(ordered, ordered, side="right")
    cost = len(lengths) * ordered + _COPY_COST * longer * ordered[-1]
    short = max(1, int(ordered[cost.argmin()]))
    return Reading(short, torch.from_numpy(np.flatnonzero(lengths > short)).to(device))


def use_decode_attention(model: nn.Module) -> None:
    """Make a transformers model obey the `reading` passed to its forward pass. Idempotent."""
    from transformers import AttentionInterface

    AttentionInterface.register(IMPLEMENTATION, decode_attention)
    model.set_attn_implementation(IMPLEMENTATION)  # type: ignore[operator]


def decode_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    reading: Reading | None = None,
    scaling: float | None = None,
    query_positions: Tensor | None = None,
    **keywords: Any,
) -> tuple[Tensor, None]:
    """Compute attention: query [B, H, Q, D], key and value [B, H_kv, L, D] -> [B, Q, H, D] (transformers' interface).

    `query_positions` [B, Q] is each query's position in its row. Raises ValueError for an unknown keyword.
    """
    asked = read_keywords(module, keywords)
    if asked.window is not None and query_positions is not None and asked.window < key.shape[2]:
        attention_mask = _narrowed(attention_mask, query_positions, key.shape[2], asked.window, query.dtype)
    single = query.shape[2] == 1 and key.shape == value.shape
    by_products = single and query.device.type == "cpu" and query.dtype.itemsize < 4

    def attend(rows: Tensor | slice, end: int) -> Tensor:
        mask = None if attention_mask is None else attention_mask[rows, ..., :end]
        keys, values = key[rows, :, :end], value[rows, :, :end]
        if asked.eager is not None:
            mixed, _ = asked.eager(module, query[rows], keys, values, mask, scaling=scaling, **keywords)
            return mixed.transpose(1, 2)
        if by_products:
            return attend_by_products(query[rows], keys, values, mask, scaling)
        return scaled_dot_product_attention(
            query[rows],
            keys,
            values,
            attn_mask=mask,
            is_causal=mask is None and query.shape[2] > 1,
            scale=scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )

    everything = slice(None)
    if reading is None:
        return attend(everything, key.shape[2]).transpose(1, 2), None
    output = attend(everything, reading.short)
    if len(reading.long):
        output[reading.long] = attend(reading.long, key.shape[2])
    return output.transpose(1, 2), None


def _narrowed(mask: Tensor | None, positions: Tensor, length: int, window: int, dtype: torch.dtype) -> Tensor:
    """Return `mask` as [B, 1, Q, L] additive, and also hide keys `window` or more positions before each query."""
    keys = torch.arange(length, device=positions.device)
    near = additive(keys > positions[:, None, :, None] - window, dtype)
    return near if mask is None else torch.minimum(mask, near)


def attend_by_products(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float | None) -> Tensor:
    """Compute attention as products: query [B, H, 1, D], key and value [B, H_kv, L, D] -> [B, H, 1, D].

    The result has query's dtype and is computed in float32. `mask` [B, 1, 1, L] is added to the scores. Works on one
    head of the cache at a time, so that the widened values stay in the CPU's caches.
    """
    rows, heads, _, width = query.shape
    grouped = query.reshape(rows, key.shape[1], -1, width).float() * (width**-0.5 if scaling is None else scaling)
    mixed, wide = torch.empty_like(grouped), grouped.new_empty(rows, key.shape[2], width)
    for head in range(key.shape[1]):
        scores = grouped[:, head] @ wide.copy_(key[:, head]).transpose(1, 2)
        if mask is not None:
            scores += mask[:, 0]
        mixed[:, head] = torch.softmax(scores, -1) @ wide.copy_(value[:, head])
    return mixed.view(rows, heads, 1, width).to(query.dtype)
