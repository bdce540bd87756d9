"""A key-value cache whose rows are conversations of different lengths, kept between their turns.

It takes the place of transformers' own caches, which append to all rows alike.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


@dataclass
class Window:
    """The part of the cache that the next forward pass writes and reads. Shared by all layers."""

    rows: slice | Tensor = field(default_factory=lambda: slice(0, 0))
    """Rows of the batch: a leading slice (read without a copy) or indices [B] int64."""
    positions: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.int64))
    """[B, Q] int64: where each new key and value goes."""
    length: int = 0
    """Cached positions that are read: 0 .. length-1; the attention mask hides what a row does not have."""
    count: int = 0
    """Rows in use; the cache may forget those beyond."""


class RowLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """Keys and values of one layer, each [rows, heads, positions, head dim]."""

    is_sliding = False
    keys: Tensor
    values: Tensor

    def __init__(self, window: Window) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.window = window

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.keys = key_states.new_zeros((0, key_states.shape[1], 0, key_states.shape[3]))
        self.values = value_states.new_zeros((0, value_states.shape[1], 0, value_states.shape[3]))
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the new states [B, heads, Q, head dim]; return those of the window [B, heads, length, head dim]."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self._reserve()
        return self._exchange(self.keys, key_states), self._exchange(self.values, value_states)

    def _exchange(self, held: Tensor, new: Tensor) -> Tensor:
        window = self.window
        rows = window.rows
        index = torch.arange(rows.stop, device=new.device) if isinstance(rows, slice) else rows
        held[index[:, None], :, window.positions] = new.transpose(1, 2)
        return held[rows, :, : window.length]

    def _reserve(self) -> None:
        """Grow by half, so that growing is rare; longer rows are given only to the conversations that are left."""
        rows, positions = self.window.count, self.window.length
        held_rows, held_positions = self.keys.shape[0], self.keys.shape[2]
        if positions > held_positions:
            positions += positions // 2
        elif rows > held_rows:
            rows, positions = rows + rows // 2, held_positions
        else:
            return
        self.keys, self.values = _moved(self.keys, rows, positions), _moved(self.values, rows, positions)

    def copy_row(self, source: int, target: int, length: int) -> None:
        self._reserve()
        for held in (self.keys, self.values):
            held[target, :, :length] = held[source, :, :length]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.window.length, 0

    def get_seq_length(self) -> int:
        return self.window.length

    def get_max_length(self) -> int:
        return -1


class RowCache(Cache):
    """The cache that is passed to the model as `past_key_values`."""

    layers: list[RowLayer]  # type: ignore[assignment]

    def __init__(self, layers: int) -> None:
        self.window = Window()
        super().__init__(layers=[RowLayer(self.window) for _ in range(layers)])

    def copy_row(self, source: int, target: int, length: int) -> None:
        """Give row `target` the first `length` positions of row `source`, which needs no place yet for 0."""
        for layer in self.layers:
            if layer.is_initialized and length:
                layer.copy_row(source, target, length)


def _moved(held: Tensor, rows: int, positions: int) -> Tensor:
    """`held` in a tensor of another size. Zeros, since what is masked must still be finite."""
    moved = held.new_zeros((rows, held.shape[1], positions, held.shape[3]))
    kept = min(rows, held.shape[0])
    moved[:kept, :, : held.shape[2]] = held[:kept]
    return moved
