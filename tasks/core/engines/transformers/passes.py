"""Forward passes: which ids of which rows are fed to the model, where they are cached, and what they read."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tasks.core.engines.transformers.conversations import SAMPLING, Conversations, Rows
from tasks.core.engines.transformers.decode_attention import Read, Reading, make_read, prompt_reads, step_reads
from tasks.core.engines.transformers.row_cache import Window
from tasks.core.engines.transformers.tiles import Tiles


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
