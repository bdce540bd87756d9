"""Forward passes over rows of a key-value cache: which ids are fed, where they are cached, and what they read.

The cache's rows are conversations of different lengths, kept between turns. It replaces transformers' own caches, which
append to all rows alike.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from tasks.core.engines.transformers.conversations import SAMPLING, Conversations, Rows
from tasks.core.engines.transformers.decode_attention import Read, Reading, Tiles, make_read, prompt_reads, step_reads


@dataclass(frozen=True)
class Window:
    """The part of the cache that one forward pass writes."""

    rows: Tensor
    """[N] int64: the row of each id; a pass may have more ids, whose states are not kept."""
    positions: Tensor
    """[N] int64: the position of each new key and value."""
    length: int
    """Cached positions that are read at most: 0 .. length-1."""


class HeldStates:
    """Keys and values of one layer, each [rows, heads, positions, head dim]; None before the first pass."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self._first = Lock()

    def exchange(self, keys: Tensor, values: Tensor, window: Window, room: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Write the new states [T, heads, 1, head dim]; return all that are held [rows, heads, positions, head dim].

        Passes over different rows may call this in parallel. The first call creates the tensors, with `room` for (rows,
        positions).
        """
        with self._first:
            if self.keys is None or self.values is None:
                self.keys, self.values = _empty(keys, room), _empty(values, room)
        return _exchange(self.keys, keys, window), _exchange(self.values, values, window)

    def resize(self, rows: int, positions: int) -> None:
        """Grow by half, so that growth is rare; more positions are given to the first `rows` conversations only."""
        if self.keys is None or self.values is None:
            return
        held_rows, held_positions = self.keys.shape[0], self.keys.shape[2]
        if positions > held_positions:
            positions += positions // 2
        elif rows > held_rows:
            rows, positions = rows + rows // 2, held_positions
        else:
            return
        self.keys, self.values = _moved(self.keys, rows, positions), _moved(self.values, rows, positions)

    def copy_row(self, source: int, target: int, length: int) -> None:
        for held in (self.keys, self.values):
            if held is not None:
                held[target, :, :length] = held[source, :, :length]


class _WindowLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """One layer of the cache as a single pass sees it."""

    is_sliding = False

    def __init__(self, held: HeldStates, window: Window, room: tuple[int, int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._held, self._window, self._room = held, window, room

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Do nothing: the held states make room themselves."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        return self._held.exchange(key_states, value_states, self._window, self._room)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._window.length, 0

    def get_seq_length(self) -> int:
        return self._window.length

    def get_max_length(self) -> int:
        return -1


class AllCached(Exception):  # noqa: N818 - no error
    """A pass that only fills the cache has written the last layer's keys and values."""


class _LastLayer(_WindowLayer):  # type: ignore[no-untyped-call]
    """The last layer of a pass that only fills the cache: ends it, because nothing uses the layer's output."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        super().update(key_states, value_states)
        raise AllCached


class RowCache:
    """The keys and values of all rows, in as many layers as the model has."""

    def __init__(self, layers: int) -> None:
        self.layers = layers
        self._held = [HeldStates() for _ in range(layers)]
        self._room = (0, 0)

    def reserve(self, rows: int, positions: int) -> None:
        """Make room for the following passes; rows beyond the first `rows` may be lost."""
        self._room = (rows, positions)
        for held in self._held:
            held.resize(rows, positions)

    def through(self, window: Window, *, whole: bool) -> Cache:
        """Return the cache of a pass over `window`, for which room is reserved.

        A pass that is not `whole` ends with AllCached as soon as the last layer's states are written.
        """
        last = _WindowLayer if whole else _LastLayer
        kinds = [_WindowLayer] * (self.layers - 1) + [last]
        return Cache(layers=[kind(held, window, self._room) for kind, held in zip(kinds, self._held, strict=True)])

    def copy_row(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` positions of row `source` to row `target`; if 0, `target` needs no room yet."""
        if length:
            for held in self._held:
                held.copy_row(source, target, length)


def _empty(states: Tensor, room: tuple[int, int]) -> Tensor:
    rows, positions = room
    return states.new_zeros((rows, states.shape[1], positions + positions // 2, states.shape[3]))


def _exchange(held: Tensor, new: Tensor, window: Window) -> Tensor:
    held[window.rows, :, window.positions] = new[: len(window.rows), :, 0]
    return held


def _moved(held: Tensor, rows: int, positions: int) -> Tensor:
    """Return `held` in a tensor of another size, filled with zeros because masked values must be finite too."""
    moved = held.new_zeros((rows, held.shape[1], positions, held.shape[3]))
    kept = min(rows, held.shape[0])
    moved[:kept, :, : held.shape[2]] = held[:kept]
    return moved


class Pass(NamedTuple):
    """One forward pass over the next ids of some rows, which fit into the cache."""

    rows: Rows
    """[N]: the row of each id."""
    ids: Tensor
    """[T, 1] int64: the ids, and padding to whole tiles behind them."""
    position_ids: Tensor
    """[T, 1] int64."""
    window: Window
    reading: Reading


def next_ids(rows: Conversations, part: slice | Rows, tiles: Tiles, like: Tensor) -> Pass:
    """Return a pass over one id of each row in `part`, with masks like `like`.

    What an idle row writes is overwritten before it is read.
    """
    index = np.arange(rows.count)[part]
    positions = rows.cached[index]
    if isinstance(part, slice):
        lengths = np.where(rows.state[index] == SAMPLING, positions + 1, 0)
        return _pass(rows, index, positions, step_reads(part, positions, lengths, tiles, like), tiles)
    held, longest = torch.from_numpy(index).to(like.device), tiles.whole_keys(int(positions.max()) + 1)
    return _pass(rows, index, positions, [make_read(slice(0, len(index)), held, positions, longest, like)], tiles)


def prompts(rows: Conversations, batch: Rows, tiles: Tiles, like: Tensor) -> Pass:
    """Return a pass over all ids of the rows in `batch` that are not cached, except the last of each."""
    spans = [np.arange(rows.cached[row], rows.known[row] - 1) for row in batch]
    starts = np.cumsum([0, *map(len, spans)])[:-1]
    reads = [
        read
        for start, row, span in zip(starts, batch, spans, strict=True)
        for read in prompt_reads(int(start), int(row), span, tiles, like)
    ]
    index = np.repeat(batch, [len(span) for span in spans])
    return _pass(rows, index, np.concatenate(spans), reads, tiles)


def prompt_batches(rows: Rows, lengths: Rows, most: int) -> Iterator[Rows]:
    """Split rows into batches of at most `most` ids, or of one longer row; skip rows of length 0."""
    batch: list[int] = []
    filled = 0
    for row, length in zip(rows.tolist(), lengths.tolist(), strict=True):
        if length == 0:
            continue
        if batch and filled + length > most:
            yield np.asarray(batch)
            batch, filled = [], 0
        batch.append(row)
        filled += length
    if batch:
        yield np.asarray(batch)


def _pass(rows: Conversations, index: Rows, positions: Rows, reads: list[Read], tiles: Tiles) -> Pass:
    """Return a pass over the ids at these rows and positions [N]."""
    device = reads[0].mask.device
    known = np.minimum(positions, np.maximum(rows.known[index] - 1, 0))  # an idle row writes behind its ids
    fed = np.zeros((2, tiles.whole_rows(len(index)), 1), np.int64)
    fed[0, : len(index), 0], fed[1, : len(index), 0] = rows.ids[index, known], known
    ids, position_ids = torch.from_numpy(fed).to(device)
    window = Window(
        torch.from_numpy(index).to(device),
        torch.from_numpy(positions).to(device),
        max(int(positions.max()) + 1, *(read.mask.shape[-1] for read in reads)),
    )
    return Pass(index, ids, position_ids, window, Reading(reads, tiles))
