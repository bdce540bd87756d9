"""An engine for any Hugging Face causal language model, sampled in this process on CPU or GPU.

One key-value cache holds every live conversation and persists between turns. A step feeds one id to each row, whatever
its length. Ids that arrive in bulk (new prompts, observations) are prefilled beforehand for several rows at once,
except the last id, which joins the next step. So all log-probs are computed in one place, and equal those of a full
forward pass. The order of work depends on the requests alone, never on the clock.

On a CPU, the rows of a larger model are split into passes that run on all cores in parallel. The split depends on the
model alone, so that the number of cores does not change what is sampled.

The engine uses the model's own forward pass. A hand-written one for the embedded policy (joined Q, K and V, fused
norms) gives the same bits in 8.5 instead of 9.2 ms at 144 rows and 0.5 instead of 1.0 ms at 4: about 6% of a
collection, which does not justify a decoder for one architecture. At 144 rows the time goes into matrix products and
reading the cache.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tasks.core.engines.in_process.conversations import IDLE, QUEUED, SAMPLING, Conversations, Rows, draw
from tasks.core.engines.in_process.decode_attention import Reading, plan_reading, use_decode_attention
from tasks.core.engines.in_process.policy_weights import PolicyWeights
from tasks.core.engines.in_process.row_cache import AllCached, RowCache, Window
from tasks.core.interfaces.engine import Generation, GenerationRequest, check_request, check_room
from tasks.core.policies.float32_logits import use_float32_logits
from tasks.core.policies.head import body_of
from tasks.core.policies.layers import foreign_layer
from tasks.core.policies.pass_threads import map_passes
from tasks.core.policies.positions import context_length, require_fixed_rotary

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_WORTH_A_CORE = 6e9
"""Floating-point operations that make a pass worth its own thread."""
_LEAST_ROWS = 24
"""Minimum rows of a step's pass, if there are that many: fewer rows take nearly as long, the time to read the
weights."""
_PREFILL_POSITIONS = (512, 4096)
"""Padded positions of one prefill pass: for a large model, and for a small one or on a GPU."""
_PREFILL_SHARE = 10
"""Returning rows wait until they are one in this many of all rows, so that prefills are few and full."""
_WORTHWHILE_PREFIX = 16
"""A prompt waits for another prompt's prefill if that saves this many ids."""


class _Pass(NamedTuple):
    """One forward pass over some of the rows, which fit into the cache."""

    rows: Rows
    ids: Tensor
    """[B, Q] int64: the next ids of each row; rows with fewer ids are padded on the right."""
    position_ids: Tensor
    """[B, Q] int64; padding repeats a position that the row has."""
    window: Window
    reading: Reading | None


class TransformersEngine:
    """An `Engine` over a loaded model; the engine owns the model's weights from now on (see `PolicyWeights`)."""

    def __init__(self, model: "PreTrainedModel") -> None:
        """Prepare the model.

        Raises ValueError for a model with layers that store anything except keys and values of all positions.
        """
        foreign = foreign_layer(model)
        if foreign is not None:
            raise ValueError(f"{type(model).__name__}: {foreign}, which the engine's cache cannot store")
        self._adopt(model)
        use_decode_attention(model)
        self._rows_per_pass, self._prefill_positions = _pass_sizes(model)
        self._cache = RowCache(model.config.get_text_config().num_hidden_layers)

    def _adopt(self, model: "PreTrainedModel") -> None:
        """Take over a model, whatever its layers store."""
        self._model = model
        self._device = model.device  # kept here because transformers searches for it on every access
        self._body = body_of(model)
        """The model without its head, for a prefill that runs to its end because the last layer caches nothing."""
        model.train(False)
        self._context_length = context_of(model)
        self._vocabulary: int = model.config.get_text_config().vocab_size
        use_float32_logits(model)
        self._weights = PolicyWeights(model)
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
        """Load the adapter or full weights in the folder `path`; None: the base. Drops all cached conversations."""
        self._rows = Conversations()
        self._weights.load(path)

    def submit(self, request: GenerationRequest) -> None:
        """Queue one turn.

        Raises ContextOverflow, or ValueError for an empty prompt, an id that the model lacks or a conversation whose
        last turn is still being sampled.
        """
        name, length = request.sequence_id, len(request.prompt_ids)
        self._check(request)
        check_room(request, self._context_length)
        row = self._rows.row_of.get(name)
        if row is None:
            row = self._rows.add(name)
        self._rows.queue(row, request, end=min(length + request.sampling.max_tokens, self._context_length))

    @torch.inference_mode()
    def collect(self) -> list[Generation]:
        """Run until at least one queued turn is done. Returns all finished turns; [] if nothing is queued."""
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
        """Forget a conversation; the last row moves into its place. Ignores unknown ids."""
        if sequence_id not in self._rows.row_of:
            return
        moved = self._rows.remove(sequence_id)
        if moved is not None:
            source, target = moved
            with torch.inference_mode():
                self._cache.copy_row(source, target, int(self._rows.cached[target]))

    def close(self) -> None:
        self._rows = Conversations()
        self._cache = RowCache(self._cache.layers)

    def _check(self, request: GenerationRequest) -> None:
        check_request(request, self._vocabulary)
        name = request.sequence_id
        row = self._rows.row_of.get(name)
        if row is not None and self._rows.state[row] != IDLE:
            raise ValueError(f"{name}: its last turn is still being sampled")

    def _prefill(self) -> None:
        """Cache all ids of the queued rows except the last, in waves: first the rows whose cache others can copy."""
        rows, waiting = self._rows, self._rows.rows(QUEUED)
        while len(waiting):
            wave, later = self._share_prefixes(waiting)
            lengths = rows.known - 1 - rows.cached
            batches = list(_batches(wave, lengths[wave], self._prefill_positions))
            self._run(self._read, [self._pass(batch, int(lengths[batch].max())) for batch in batches])
            rows.cached[wave] = rows.known[wave] - 1
            rows.state[wave] = SAMPLING
            waiting = later

    def _share_prefixes(self, waiting: Rows) -> tuple[Rows, Rows]:
        """Copy prefixes of waiting prompts that other rows have cached.

        Returns the rows that are ready, and those to wait.
        """
        rows, ready, later = self._rows, [], []
        self._cache.reserve(rows.count, 0)
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
            self._cache.copy_row(donor, row, int(cached[donor]))
            rows.cached[row] = cached[donor]
            ready.append(row)
        return np.asarray(ready, dtype=np.int64), np.asarray(later, dtype=np.int64)

    def _step(self) -> Rows:
        """Sample one id for every sampling row. Returns the rows that are done."""
        rows = self._rows
        sampling = rows.rows(SAMPLING)
        # Idle rows are included: reading the cache through an index copies it, which costs more than a few spare rows.
        dense = 2 * len(sampling) > rows.count
        parts = _parts(rows.count if dense else len(sampling), self._rows_per_pass)
        chosen = [part if dense else sampling[part] for part in parts]
        sampled = self._run(self._sample, [self._pass(part, 1) for part in chosen if self._samples(part)])
        ids, logprobs = (np.concatenate(part) for part in zip(*sampled, strict=True))
        return rows.append(sampling, ids, logprobs)

    def _samples(self, part: slice | Rows) -> bool:
        return bool((self._rows.state[part] == SAMPLING).any())

    def _run(self, run: Callable[[_Pass], Any], passes: Sequence[_Pass]) -> list[Any]:
        """Call `run` on each pass and return the results in order; on a CPU the passes run in parallel."""
        self._cache.reserve(self._rows.count, max((each_pass.window.length for each_pass in passes), default=0))
        return list(map_passes(run, passes, self._device))

    @torch.inference_mode()
    def _read(self, pass_: _Pass) -> None:
        with suppress(AllCached):
            self._forward(self._body, pass_, whole=False)

    @torch.inference_mode()
    def _sample(self, pass_: _Pass) -> tuple[Rows, NDArray[np.float32]]:
        """Return the next ids of the sampling rows, and their log-probs."""
        rows, logits = self._rows, self._forward(self._model, pass_, whole=True).logits[:, -1]
        sampled = rows.state[pass_.rows] == SAMPLING
        sampling, device = pass_.rows[sampled], self._device
        if not sampled.all():
            logits = logits[torch.from_numpy(np.flatnonzero(sampled)).to(device)]
        draws = torch.from_numpy(rows.draws[sampling, rows.known[sampling]]).to(device)
        temperature, top_k, top_p = (
            torch.from_numpy(each[sampling]).to(device) for each in (rows.temperature, rows.top_k, rows.top_p)
        )
        ids, logprobs = draw(logits, temperature, draws, top_k, top_p)
        return ids.cpu().numpy(), logprobs.cpu().numpy()

    def _pass(self, part: slice | Rows, width: int) -> _Pass:
        """Return a pass over the next `width` ids of the rows.

        Rows with fewer ids are padded on the right: values written there are overwritten before they are read.
        """
        rows, device = self._rows, self._device
        index = np.arange(rows.count)[part]
        offsets = rows.cached[index][:, None] + np.arange(width)
        inside = np.minimum(offsets, np.maximum(rows.known[index] - 1, 0)[:, None])
        window = Window(
            part if isinstance(part, slice) else torch.from_numpy(part).to(device),
            torch.from_numpy(offsets).to(device),
            int(offsets.max()) + 1,
        )
        return _Pass(
            index,
            torch.from_numpy(rows.ids[index[:, None], inside]).to(device),
            torch.from_numpy(inside).to(device),
            window,
            self._reading(part, offsets),
        )

    def _forward(self, model: nn.Module, pass_: _Pass, whole: bool) -> Any:
        """Feed the ids of a pass to `model` and cache them. Returns the model's output if the pass is `whole`."""
        return model(
            input_ids=pass_.ids,
            attention_mask=_mask(pass_.window.positions, pass_.window.length, self._model.dtype),
            position_ids=pass_.position_ids,
            past_key_values=self._cache.through(pass_.window, whole=whole),
            use_cache=True,
            reading=pass_.reading,
            query_positions=pass_.window.positions,
        )

    def _reading(self, part: slice | Rows, offsets: Rows) -> Reading | None:
        """Return how a step over neighbouring rows reads the cache; idle rows may be read short."""
        if not isinstance(part, slice) or offsets.shape[1] > 1:
            return None
        sampling = self._rows.state[part] == SAMPLING
        return plan_reading(np.where(sampling, offsets[:, 0] + 1, 0), self._device)


def _pass_sizes(model: "PreTrainedModel") -> tuple[int | None, int]:
    """Return the rows of one step's pass (None: all), and the positions of one prefill pass."""
    large, small = _PREFILL_POSITIONS
    if model.device.type != "cpu":
        return None, small
    worth_it = int(_WORTH_A_CORE / (2 * model.num_parameters()))
    return max(_LEAST_ROWS, worth_it), min(max(large, worth_it), small)


def _parts(count: int, least: int | None) -> list[slice]:
    """Split `count` rows into 1, 2, 4, ... equal ranges of at least `least` rows, or into a single range.

    Powers of two suit the number of cores: three passes take two cores as long as four.
    """
    parts = 2 ** int(math.log2(max(1, count // least))) if least else 1
    bounds = [count * part // parts for part in range(parts + 1)]
    return [slice(*pair) for pair in pairwise(bounds)]


def _mask(positions: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    """Return an additive mask [B, 1, Q, length] in which position p reads 0 .. p."""
    hidden = torch.arange(length, device=positions.device) > positions[:, None, :, None]
    return torch.zeros_like(hidden, dtype=dtype).masked_fill_(hidden, torch.finfo(dtype).min)


def _batches(rows: Rows, lengths: Rows, positions: int) -> Iterator[Rows]:
    """Split rows into batches of similar length and at most `positions` padded positions; skip rows of length 0."""
    batch: list[int] = []
    for index in np.argsort(-lengths, kind="stable"):
        if lengths[index] == 0:
            break
        widest = lengths[rows == batch[0]][0] if batch else 0
        if batch and (len(batch) + 1) * widest > positions:
            yield np.asarray(batch)
            batch = []
        batch.append(int(rows[index]))
    if batch:
        yield np.asarray(batch)


def context_of(model: "PreTrainedModel") -> int:
    """Return how many positions a conversation with `model` may have.

    Raises ValueError for a model that names no limit, or whose rotary factors change for longer conversations.
    """
    config = model.config.get_text_config().to_dict()
    require_fixed_rotary(config, type(model).__name__)
    return context_length(config)
