"""Attention over the cached positions of many conversations, each id of a pass a query of its own.

A step takes as long as reading the cache. Conversations differ in length, and a few very long ones would make every row
be read to their length. So all rows are read up to a length that suffices for most, and the few longer rows are read
again, whole. With 144 rows of the embedded policy this takes about half the memory traffic of one read to the longest
row. The ids of a prompt read their row in chunks, so that the first of them do not read to the end of the last.

On a CPU torch's kernel is slow for single queries in lower precision: 96 rows of 400 positions (SmolLM2's 9 heads over
3) take 27 ms a layer in bfloat16 on an AMD EPYC core. Plain products in float32 take 4.4 ms and round only once.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from tasks.core.policies.layers import Asked, additive, read_keywords


class Tiles(NamedTuple):
    """Shapes of the passes, which make a conversation's bits independent of its company.

    A matrix product may sum in another order for another number of rows, and so may attention for another number of
    keys. Libraries do so for small and for odd shapes: MKL takes another kernel below four rows. So rows and keys are
    padded to whole tiles, and each id is a query of its own: one that comes in a long prompt is attended to as one that
    was sampled. Each field that differs from `FREE` costs a little time.
    """

    rows: int
    """A pass has a multiple of this many ids."""
    keys: int
    """Attention reads a multiple of this many positions of the cache."""
    query_alone: bool
    """Each id is attended to by itself; else a prompt's ids all at once."""
    head_alone: bool = False
    """Query heads that share keys are attended to one after another."""

    def whole_rows(self, count: int) -> int:
        """Return `count` ids, rounded up to whole tiles."""
        return -(-count // self.rows) * self.rows

    def whole_keys(self, count: int) -> int:
        """Return `count` positions, rounded up to whole tiles."""
        return -(-count // self.keys) * self.keys


FREE = Tiles(1, 1, query_alone=False)
"""No promise: the fastest passes."""
LADDER = (
    Tiles(16, 64, query_alone=True),
    Tiles(16, 64, query_alone=True, head_alone=True),
    Tiles(64, 512, query_alone=True, head_alone=True),
)
"""Shapes to try, the fastest first."""


IMPLEMENTATION = "decode_rows"
_COPY_COST = 3
"""Rows read by index are copied: read, written, read again."""
_CHUNK = 64
"""Ids of a prompt that read their row to the same position."""

Positions = NDArray[np.int64]


class Read(NamedTuple):
    """Queries of a pass that read the cache to the same position."""

    queries: slice | Tensor
    """The queries' places in the pass."""
    rows: slice | Tensor
    """The cache's row of each query, or one row for all of them. Adjacent rows as a slice are read without a copy."""
    positions: Tensor
    """[N] int64: each query's position in its row; it sees the positions up to there."""
    mask: Tensor
    """[N, 1, 1, L], added to the scores of positions 0 .. L - 1."""


class Reading(NamedTuple):
    """How one pass reads the cache."""

    reads: Sequence[Read]
    tiles: Tiles


_READING: ContextVar[Reading] = ContextVar("reading")


@contextmanager
def read_by(reading: Reading) -> Iterator[None]:
    """Make the attention of this thread's forward pass read the cache by `reading`.

    Not a keyword of the forward pass: some models (StableLM, Nemotron) hand no keyword on to their attention.
    """
    token = _READING.set(reading)
    try:
        yield
    finally:
        _READING.reset(token)


def make_read(queries: slice | Tensor, rows: slice | Tensor, positions: Positions, length: int, like: Tensor) -> Read:
    """Return a read of positions 0 .. `length` - 1, its mask on the device and in the dtype of `like`."""
    held = torch.from_numpy(positions).to(like.device)
    visible = torch.arange(length, device=like.device) <= held[:, None]
    return Read(queries, rows, held, additive(visible, like.dtype)[:, None, None])


def step_reads(rows: slice, positions: Positions, lengths: Positions, tiles: Tiles, like: Tensor) -> list[Read]:
    """Return the cheapest reads of one id each of adjacent rows.

    A row's id at its position [B] reads `lengths` [B] positions; 0: the row's result is not used.
    """
    short = short_length(lengths, tiles)
    reads = [make_read(slice(0, len(lengths)), rows, positions, short, like)]
    longer = np.flatnonzero(lengths > short)
    if len(longer):
        index = torch.from_numpy(longer).to(like.device)
        whole = tiles.whole_keys(int(lengths.max()))
        reads.append(make_read(index, index + rows.start, positions[longer], whole, like))
    return reads


def short_length(lengths: Positions, tiles: Tiles) -> int:
    """Return the length up to which all rows of these [B] lengths are read, where longer ones are read again."""
    ordered = np.sort(lengths)
    longer = len(lengths) - np.searchsorted(ordered, ordered, side="right")
    cost = len(lengths) * ordered + _COPY_COST * longer * ordered[-1]
    return tiles.whole_keys(max(1, int(ordered[cost.argmin()])))


def prompt_reads(start: int, row: int, positions: Positions, tiles: Tiles, like: Tensor) -> Iterator[Read]:
    """Yield the reads of a row's ids at adjacent `positions`, of which the first is the pass's id number `start`."""
    chunk = _CHUNK if tiles.query_alone else len(positions)
    for first in range(0, len(positions), chunk):
        part = positions[first : first + chunk]
        queries = slice(start + first, start + first + len(part))
        yield make_read(queries, slice(row, row + 1), part, tiles.whole_keys(int(part[-1]) + 1), like)


def use_decode_attention(model: nn.Module) -> None:
    """Make a transformers model read the cache by `read_by`. Idempotent."""
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
    scaling: float | None = None,
    **keywords: Any,
) -> tuple[Tensor, None]:
    """Compute attention: query [T, H, 1, D], all of the cache [R, H_kv, L, D or E] -> [T, 1, H, E], zero for padding.

    The interface is transformers'; its mask is not used, since `read_by` says what each query sees. Raises ValueError
    for an unknown keyword.
    """
    asked, reading = read_keywords(module, keywords), _READING.get()
    output = query.new_zeros((*query.shape[:3], value.shape[-1]))  # latent attention has values of another width
    for read in reading.reads:
        length = read.mask.shape[-1]
        keys, values = key[read.rows, :, :length], value[read.rows, :, :length]
        mask = _narrowed(read, asked.window)
        if asked.eager is not None:
            output[read.queries] = _by_model(module, query[read.queries], keys, values, mask, asked, scaling, keywords)
        else:
            output[read.queries] = attend(query[read.queries], keys, values, mask, scaling, reading.tiles)
    return output.transpose(1, 2), None


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    scaling: float | None,
    tiles: Tiles,
    by_products: bool | None = None,
) -> Tensor:
    """Compute attention: query [N, H, 1, D], key and value [N or 1, H_kv, L, D] -> [N, H, 1, D].

    Query heads that share keys are queries of one head of keys, so that the keys are not repeated in memory. Computes
    by plain products or by torch's kernel; None: whichever `takes_products` says for the query's dtype.
    """
    if len(key) == 1 and len(query) > 1 and not tiles.query_alone:
        queries, seen = query.transpose(0, 2), mask.transpose(0, 2)
        grouped = key.shape[1] != query.shape[1]
        mixed = scaled_dot_product_attention(queries, key, value, attn_mask=seen, scale=scaling, enable_gqa=grouped)
        return mixed.transpose(0, 2)
    by_products = key.shape == value.shape and (takes_products(query) if by_products is None else by_products)
    rows, _, _, width = query.shape
    heads = query.reshape(rows, key.shape[1], -1, width)
    mixed = torch.empty((*heads.shape[:3], value.shape[-1]), dtype=query.dtype, device=query.device)
    if not by_products:
        key, value = (part.expand(rows, -1, -1, -1) for part in (key, value))
    count = heads.shape[2]  # query heads that share keys
    groups = [slice(head, head + 1) for head in range(count)] if tiles.head_alone else [slice(0, count)]
    for part in groups:
        if by_products:
            mixed[:, :, part] = attend_by_products(heads[:, :, part], key, value, mask, scaling)
        else:
            mixed[:, :, part] = scaled_dot_product_attention(
                heads[:, :, part], key, value, attn_mask=mask, scale=scaling
            )
    return mixed.view(rows, -1, 1, value.shape[-1])


def takes_products(like: Tensor) -> bool:
    """Return whether attention in the dtype of `like`, on its device, is computed as plain products."""
    return like.device.type == "cpu" and like.dtype.itemsize < 4


def attend_by_products(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float | None) -> Tensor:
    """Compute attention as products: query [N, H_kv, G, D], key and value [N or 1, H_kv, L, D] -> [N, H_kv, G, D].

    The result has query's dtype and is computed in float32. `mask` [N, 1, 1, L] is added to the scores. Works on one
    head of the cache at a time, so that the widened values stay in the CPU's caches.
    """
    width = query.shape[-1]
    wide_query = query.float() * (width**-0.5 if scaling is None else scaling)
    mixed, wide = torch.empty_like(wide_query), wide_query.new_empty(len(key), key.shape[2], width)
    for head in range(key.shape[1]):
        scores = wide_query[:, head] @ _widened(key[:, head], wide, len(query)).transpose(1, 2)
        if mask is not None:
            scores += mask[:, 0]
        mixed[:, head] = torch.softmax(scores, -1) @ _widened(value[:, head], wide, len(query))
    return mixed.to(query.dtype)


def _widened(part: Tensor, wide: Tensor, rows: int) -> Tensor:
    return wide.copy_(part).expand(rows, -1, -1)


def _narrowed(read: Read, window: int | None) -> Tensor:
    """Return the mask of `read`, which also hides keys `window` or more positions before each query."""
    length = read.mask.shape[-1]
    if window is None or window >= length:
        return read.mask
    near = torch.arange(length, device=read.mask.device) > read.positions[:, None] - window
    return torch.minimum(read.mask, additive(near, read.mask.dtype)[:, None, None])


def _by_model(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    asked: Asked,
    scaling: float | None,
    keywords: dict[str, Any],
) -> Tensor:
    """Compute attention by the model's own function, as `attend` does."""
    assert asked.eager is not None
    key, value = (part.expand(len(query), -1, -1, -1) for part in (key, value))
    mixed, _ = asked.eager(module, query, key, value, mask, scaling=scaling, **keywords)
    return mixed.transpose(1, 2)
