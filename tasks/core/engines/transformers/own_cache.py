"""An in-process engine for models whose state does not fit the rows of one key-value cache.

Each conversation has one of transformers' own caches, whatever the model's layers store in it, and its own passes, with
the eager attention of the model's own file. A recurrent state cannot be cut back to an earlier position, and not all
models can continue a state by several ids at once. So a turn begins with one pass over the whole conversation and then
takes one pass per id. That is exact but slow; for models of any size use a server such as vLLM.
"""

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from tasks.core.engines.transformers.conversations import QUEUED, SAMPLING, Conversations, Rows
from tasks.core.engines.transformers.engine import NO_CACHE, TransformersEngine, cache_keyword
from tasks.core.policies.layers import foreign_layer, use_own_attention
from tasks.core.policies.pass_threads import map_passes

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def in_process_engine(model: "PreTrainedModel") -> TransformersEngine:
    """Return the fastest in-process engine that computes what `model` does. Raises ValueError if there is none."""
    return TransformersEngine(model) if foreign_layer(model) is None else OwnCacheEngine(model)


class OwnCacheEngine(TransformersEngine):
    """An `Engine` over a loaded model, with one of the model's own caches per conversation."""

    def __init__(self, model: "PreTrainedModel") -> None:
        """Prepare the model. Raises ValueError for a model that uses none of transformers' caches."""
        self._cache_name = cache_keyword(model)
        self._takes_positions = "position_ids" in inspect.signature(type(model).forward).parameters
        use_own_attention(model)
        self._adopt(model)
        self._caches: dict[str, Any] = {}

    def load_adapter(self, path: Path | None) -> None:
        """Load the adapter or full weights in the folder `path`; None: the base. Drops all cached conversations."""
        self._caches.clear()
        super().load_adapter(path)

    def release(self, sequence_id: str) -> None:
        """Forget a conversation. Ignores unknown ids."""
        self._caches.pop(sequence_id, None)
        if sequence_id in self._rows.row_of:
            self._rows.remove(sequence_id)

    def close(self) -> None:
        self._caches.clear()
        self._rows = Conversations()

    def _prefill(self) -> None:
        """Read all ids of the queued conversations except the last."""
        rows, queued = self._rows, self._rows.rows(QUEUED)
        for row in queued:
            self._caches[rows.names[row]] = None
        list(map_passes(self._read_row, queued.tolist(), self._device))
        rows.cached[queued] = rows.known[queued] - 1
        rows.state[queued] = SAMPLING

    def _step(self) -> Rows:
        """Sample one id for every sampling conversation. Returns those that are done."""
        sampling = self._rows.rows(SAMPLING)
        sampled = list(map_passes(self._sample_row, sampling.tolist(), self._device))
        ids, logprobs = (np.concatenate(part) for part in zip(*sampled, strict=True))
        return self._rows.append(sampling, ids, logprobs)

    @torch.inference_mode()
    def _read_row(self, row: int) -> None:
        ids = self._rows.ids[row, : self._rows.known[row] - 1]
        if len(ids):
            self._feed(self._body, row, 0, ids)

    @torch.inference_mode()
    def _sample_row(self, row: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the next id [1] of a conversation, and its log-prob [1]."""
        rows, position = self._rows, self._rows.known[row]
        logits = self._feed(self._model, row, position - 1, rows.ids[row, position - 1 : position]).logits[:, -1]
        return rows.sample(np.array([row]), logits)

    def _feed(self, model: Any, row: int, start: int, ids: NDArray[np.int64]) -> Any:
        """Feed `ids`, which begin at position `start`, to `model` after the conversation's cached ids.

        Positions are passed explicitly: hybrid models would ask the first layer for them, and a recurrent layer does
        not know them.
        """
        name, given = self._rows.names[row], {}
        if self._takes_positions:
            given["position_ids"] = torch.arange(start, start + len(ids), device=self._device)[None]
        if self._caches[name] is not None:
            given[self._cache_name] = self._caches[name]
        output = model(input_ids=torch.from_numpy(ids).to(self._device)[None], use_cache=True, **given)
        self._caches[name] = getattr(output, self._cache_name, None)
        if self._caches[name] is None:
            raise ValueError(f"{type(self._model).__name__}: {NO_CACHE}")
        return output
