"""Any Hugging Face causal language model, sampled in this process on CPU or GPU.

One key-value cache holds every live conversation and stays between turns. A step feeds one id to each row, whatever its
length; ids that come in bulk (new prompts, observations) are prefilled beforehand for several rows at once, all but the
last id, which joins the next step. So every log-prob comes out of one place, and equals what a full forward pass gives.
The order of work depends on the requests alone, never on the clock.

The model's own forward pass is used. A hand-written one for the embedded policy (joined Q, K and V, fused norms) gives
the same bits in 8.5 instead of 9.2 ms at 144 rows and 0.5 instead of 1.0 ms at 4: about 6% of a collection, which is
not worth a decoder for one architecture. At 144 rows the time is that of the products and of reading the cache.
"""

from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from tasks.core.engines.in_process.conversations import IDLE, QUEUED, SAMPLING, Conversations, Rows
from tasks.core.engines.in_process.decode_attention import Reading, plan_reading, use_decode_attention
from tasks.core.engines.in_process.policy_weights import PolicyWeights
from tasks.core.engines.in_process.row_cache import RowCache, Window
from tasks.core.engines.in_process.sampling import draw
from tasks.core.interfaces.engine import Generation, GenerationRequest, check_request, check_room
from tasks.core.policies.float32_logits import use_float32_logits

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_PREFILL_POSITIONS = 4096
"""Padded positions of one prefill pass."""
_PREFILL_SHARE = 10
"""Returning rows wait until they are one in so many of all rows, so that prefills are few and full."""
_WORTHWHILE_PREFIX = 16
"""A prompt waits for another one's prefill when that saves so many ids."""


class TransformersEngine:
    """`Engine` over a loaded model, whose weights it owns from now on (see `PolicyWeights`)."""

    def __init__(self, model: "PreTrainedModel") -> None:
        """Raises ValueError for a model whose layers keep something else than keys and values of all positions."""
        self._model = model
        self._body: nn.Module = model.base_model
        """All but the head, which costs as much as many positions: prefill needs no logits."""
        model.train(False)
        self._context_length = _context_length(model)
        self._vocabulary: int = model.config.get_text_config().vocab_size
        use_decode_attention(model)
        use_float32_logits(model)
        self._weights = PolicyWeights(model)
        self._cache = RowCache(model.config.get_text_config().num_hidden_layers)
        self._rows = Conversations()

    @property
    def name(self) -> str:
        return "transformers"

    @property
    def version(self) -> str:
        return f"transformers {version('transformers')}, torch {torch.__version__}"

    @property
    def context_length(self) -> int:
        return self._context_length

    def load_adapter(self, path: Path | None) -> None:
        """Use the adapter or full weights in the folder `path`; None: the base. Drops all cached conversations."""
        self._rows = Conversations()
        self._weights.load(path)

    def submit(self, request: GenerationRequest) -> None:
        """Queue one turn. Raises ContextOverflow, or ValueError for an empty prompt, an id that the model lacks or
        a conversation whose last turn is still being sampled."""
        name, length = request.sequence_id, len(request.prompt_ids)
        self._check(request)
        check_room(request, self._context_length)
        row = self._rows.row_of.get(name)
        if row is None:
            row = self._rows.add(name)
        self._rows.queue(row, request, end=min(length + request.sampling.max_tokens, self._context_length))

    @torch.inference_mode()
    def collect(self) -> list[Generation]:
        """Run until at least one queued turn is done and return all that are; [] when nothing is queued."""
        rows = self._rows
        while True:
            queued, sampling = len(rows.rows(QUEUED)), len(rows.rows(SAMPLING))
            if queued + sampling == 0:
                return []
            if queued * _PREFILL_SHARE >= rows.count or sampling == 0:
                self._prefill()
            finished = self._step()
            if len(finished):
                return [rows.generation(row) for row in finished]

    def release(self, sequence_id: str) -> None:
        """Forget a conversation; its row is given to the last one. Unknown ids are ignored."""
        if sequence_id not in self._rows.row_of:
            return
        moved = self._rows.remove(sequence_id)
        if moved is not None:
            source, target = moved
            with torch.inference_mode():
                self._cache.copy_row(source, target, int(self._rows.cached[target]))

    def close(self) -> None:
        self._rows = Conversations()
        self._cache = RowCache(len(self._cache.layers))

    def _check(self, request: GenerationRequest) -> None:
        check_request(request, self._vocabulary)
        name = request.sequence_id
        row = self._rows.row_of.get(name)
        if row is not None and self._rows.state[row] != IDLE:
            raise ValueError(f"{name}: its last turn is still being sampled")

    def _prefill(self) -> None:
        """Cache all ids of the queued rows but the last, in waves: first those whose cache others can copy."""
        rows, waiting = self._rows, self._rows.rows(QUEUED)
        while len(waiting):
            wave, later = self._share_prefixes(waiting)
            for batch in _batches(wave, rows.known[wave] - 1 - rows.cached[wave]):
                self._forward(self._body, batch, int((rows.known[batch] - 1 - rows.cached[batch]).max()))
                rows.cached[batch] = rows.known[batch] - 1
            rows.state[wave] = SAMPLING
            waiting = later

    def _share_prefixes(self, waiting: Rows) -> tuple[Rows, Rows]:
        """Copy what other rows have cached of the waiting prompts; part the rows into those ready and those to wait."""
        rows, ready, later = self._rows, [], []
        self._cache.window.count = rows.count
        for row in waiting:
            if rows.cached[row] > 0:
                ready.append(row)
                continue
            known, cached = rows.shared_prefix(row, int(rows.known[row]) - 1)
            cached[row] = 0
            donor = int(cached.argmax())
            promised = max((known[other] for other in ready), default=0)
            if promised >= cached[donor] + _WORTHWHILE_PREFIX:
                later.append(row)
                continue
            if cached[donor] > 0:
                self._cache.copy_row(donor, row, int(cached[donor]))
                rows.cached[row] = cached[donor]
            ready.append(row)
        return np.asarray(ready, dtype=np.int64), np.asarray(later, dtype=np.int64)

    def _step(self) -> Rows:
        """Sample one id for every row that is being sampled; returns those that are done."""
        rows = self._rows
        sampling = rows.rows(SAMPLING)
        # Idle rows ride along: reading the cache through an index copies it, which costs more than a few spare rows.
        dense = 2 * len(sampling) > rows.count
        logits = self._forward(self._model, None if dense else sampling, 1).logits[:, -1]
        device = logits.device
        if dense:
            logits = logits[torch.from_numpy(sampling).to(device)]
        draws = torch.from_numpy(rows.draws[sampling, rows.known[sampling]]).to(device)
        ids, logprobs = draw(logits, torch.from_numpy(rows.temperature[sampling]).to(device), draws)
        return rows.append(sampling, ids.cpu().numpy(), logprobs.cpu().numpy())

    def _forward(self, model: nn.Module, batch: Rows | None, width: int) -> Any:
        """Feed the next `width` ids of the rows (None: of all) to `model` and cache them. Returns what it gives.

        Rows with fewer ids to come are padded on the right: what is written there is overwritten before it is read.
        """
        rows, device = self._rows, self._model.device
        index = np.arange(rows.count) if batch is None else batch
        offsets = rows.cached[index][:, None] + np.arange(width)
        inside = np.minimum(offsets, np.maximum(rows.known[index] - 1, 0)[:, None])
        ids = torch.from_numpy(rows.ids[index[:, None], inside]).to(device)
        positions = torch.from_numpy(offsets).to(device)
        self._set_window(batch, positions, int(offsets.max()) + 1)
        return model(
            input_ids=ids,
            attention_mask=_mask(positions, self._cache.window.length, self._model.dtype),
            position_ids=torch.from_numpy(inside).to(device),
            past_key_values=self._cache,
            use_cache=True,
            reading=self._reading(batch, offsets),
        )

    def _reading(self, batch: Rows | None, offsets: Rows) -> Reading | None:
        """The way in which a step over all rows reads the cache; what idle rows would read does not matter."""
        if batch is not None or offsets.shape[1] > 1:
            return None
        sampling = self._rows.state[: self._rows.count] == SAMPLING
        return plan_reading(np.where(sampling, offsets[:, 0] + 1, 0), self._model.device)

    def _set_window(self, batch: Rows | None, positions: Tensor, length: int) -> None:
        window: Window = self._cache.window
        window.rows = slice(0, self._rows.count) if batch is None else torch.from_numpy(batch).to(positions.device)
        window.positions, window.length, window.count = positions, length, self._rows.count


def _mask(positions: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    """[B, 1, Q, length] additive: position p reads 0 .. p."""
    hidden = torch.arange(length, device=positions.device) > positions[:, None, :, None]
    return torch.zeros_like(hidden, dtype=dtype).masked_fill_(hidden, torch.finfo(dtype).min)


def _batches(rows: Rows, lengths: Rows) -> Iterator[Rows]:
    """Part rows into batches of similar length and at most `_PREFILL_POSITIONS` padded positions; 0 needs no pass."""
    batch: list[int] = []
    for place in np.argsort(-lengths, kind="stable"):
        if lengths[place] == 0:
            break
        widest = lengths[rows == batch[0]][0] if batch else 0
        if batch and (len(batch) + 1) * widest > _PREFILL_POSITIONS:
            yield np.asarray(batch)
            batch = []
        batch.append(int(rows[place]))
    if batch:
        yield np.asarray(batch)


def _context_length(model: "PreTrainedModel") -> int:
    config = model.config.get_text_config()
    kinds: Iterable[str] = set(getattr(config, "layer_types", None) or ["full_attention"])
    unknown = sorted(set(kinds) - {"full_attention", "sliding_attention"})
    if unknown:
        raise ValueError(
            f"{type(model).__name__}: the transformers engine has no cache for layers of type {unknown[0]}"
        )
    sliding = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    # Within its window, sliding attention is full attention.
    return int(min(config.max_position_embeddings, sliding or config.max_position_embeddings))
