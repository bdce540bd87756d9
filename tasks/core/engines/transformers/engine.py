"""An engine for any Hugging Face causal language model, sampled in this process on CPU or GPU.

One key-value cache holds every live conversation and persists between turns. A step feeds one id to each row, whatever
its length. Ids that arrive in bulk (new prompts, observations) are prefilled beforehand for several rows at once,
except the last id, which joins the next step. So all log-probs are computed in one place, and equal those of a full
forward pass. The order of work depends on the requests alone, never on the clock.

On a CPU a conversation's ids and log-probs depend on the policy, the conversation and its seeds alone: not on other
rows, their order, the number of threads, or whose cache a prefix comes from (`tiles`, tried by `self_check`). The rows
of a larger model are split into passes that run on all cores in parallel.

The engine uses the model's own forward pass. A hand-written one for the embedded policy (joined Q, K and V, fused
norms) gives the same bits in 8.5 instead of 9.2 ms at 144 rows and 0.5 instead of 1.0 ms at 4: about 6% of a
collection, which does not justify a decoder for one architecture. At 144 rows the time goes into matrix products and
reading the cache.
"""

import inspect
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from tasks.core.engines.transformers.conversations import IDLE, QUEUED, SAMPLING, Conversations, Rows
from tasks.core.engines.transformers.decode_attention import FREE, Tiles, read_by, use_decode_attention
from tasks.core.engines.transformers.passes import AllCached, Pass, RowCache, next_ids, prompt_batches, prompts
from tasks.core.engines.transformers.self_check import Trial, first_that_holds
from tasks.core.interfaces.engine import Generation, GenerationRequest, check_request, check_room
from tasks.core.policies.head import body_of, use_float32_logits
from tasks.core.policies.layers import foreign_layer
from tasks.core.policies.pass_threads import map_passes, one_thread
from tasks.core.policies.policy_weights import PolicyWeights
from tasks.core.policies.positions import context_length, require_fixed_rotary

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_WORTH_A_CORE = 6e9
"""Floating-point operations that make a pass worth its own thread."""
_LEAST_ROWS = 24
"""Minimum rows of a step's pass, if there are that many: fewer rows take nearly as long, the time to read the
weights."""
NO_CACHE = "its forward pass returns no cache, so engine.name: transformers cannot sample from it"
_CACHES = ("cache", "past_key_values", "cache_params")
"""Names by which transformers' models take and give a cache; the first from 5.24 on."""
_PREFILL_POSITIONS = (512, 4096)
"""Padded positions of one prefill pass: for a large model, and for a small one or on a GPU."""
_PREFILL_SHARE = 10
"""Returning rows wait until they are one in this many of all rows, so that prefills are few and full."""
_WORTHWHILE_PREFIX = 16
"""A prompt waits for another prompt's prefill if that saves this many ids."""


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
        self._cache_name = cache_keyword(model)
        use_decode_attention(model)
        self._rows_per_pass, self._prefill_positions = _pass_sizes(model)
        self._like = torch.zeros(1, 1, 1, 1, dtype=model.dtype, device=model.device)
        """In place of a mask, which `read_by` has; transformers would make its own."""
        self._cache = RowCache(model.config.get_text_config().num_hidden_layers)
        self._tiles = FREE
        if self._device.type == "cpu":
            trial = partial(Trial, self, model, self._vocabulary)
            self._use(first_that_holds(self._use, trial, f"{model.dtype} {model.config}"))
            self.close()  # the trial's cache

    def _use(self, tiles: Tiles) -> None:
        self._tiles = tiles

    def _adopt(self, model: "PreTrainedModel") -> None:
        """Take over a model, whatever its layers store.

        Raises ValueError for a model that names no longest context, or whose rotary factors change for longer
        conversations.
        """
        self._model = model
        self._device = model.device  # kept here because transformers searches for it on every access
        self._body = body_of(model)
        """The model without its head, for a prefill that runs to its end because the last layer caches nothing."""
        model.train(False)
        config = model.config.get_text_config()
        require_fixed_rotary(config.to_dict(), type(model).__name__)
        self._context_length = context_length(config.to_dict())
        self._vocabulary: int = config.vocab_size
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

    def collect(self) -> list[Generation]:
        """Run until at least one queued turn is done. Returns all finished turns; [] if nothing is queued."""
        with one_thread(self._device), torch.inference_mode():
            return self._advance()

    def _advance(self) -> list[Generation]:
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
            batches = list(prompt_batches(wave, lengths[wave], self._prefill_positions))
            self._run(self._read, [prompts(rows, batch, self._tiles, self._like) for batch in batches])
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
        busy = (part for part in chosen if (rows.state[part] == SAMPLING).any())
        passes = [next_ids(rows, part, self._tiles, self._like) for part in busy]
        sampled = self._run(self._sample, passes)
        ids, logprobs = (np.concatenate(part) for part in zip(*sampled, strict=True))
        return rows.append(sampling, ids, logprobs)

    def _run(self, run: Callable[[Pass], Any], passes: Sequence[Pass]) -> list[Any]:
        """Call `run` on each pass and return the results in order; on a CPU the passes run in parallel."""
        self._cache.reserve(self._rows.count, max((each_pass.window.length for each_pass in passes), default=0))
        return list(map_passes(run, passes, self._device))

    @torch.inference_mode()
    def _read(self, pass_: Pass) -> None:
        with suppress(AllCached):
            self._forward(self._body, pass_, whole=False)

    @torch.inference_mode()
    def _sample(self, pass_: Pass) -> tuple[Rows, NDArray[np.float32]]:
        """Return the next ids of the sampling rows, and their log-probs."""
        rows, logits = self._rows, self._forward(self._model, pass_, whole=True).logits[:, -1]
        sampled = rows.state[pass_.rows] == SAMPLING
        sampling = pass_.rows[sampled]
        if len(sampling) < len(logits):
            logits = logits[torch.from_numpy(np.flatnonzero(sampled)).to(self._device)]
        return rows.sample(sampling, logits)

    def _forward(self, model: nn.Module, pass_: Pass, whole: bool) -> Any:
        """Feed the ids of a pass to `model` and cache them. Returns the model's output if the pass is `whole`."""
        with read_by(pass_.reading):
            return model(
                input_ids=pass_.ids,
                attention_mask=self._like,
                position_ids=pass_.position_ids,
                use_cache=True,
                **{self._cache_name: self._cache.through(pass_.window, whole=whole)},
            )


def cache_keyword(model: "PreTrainedModel") -> str:
    """Return the name of the cache in the model's forward pass. Raises ValueError for a model that has none."""
    known = inspect.signature(type(model).forward).parameters
    name = next((name for name in _CACHES if name in known), None)
    if name is None:
        raise ValueError(f"{type(model).__name__}: {NO_CACHE}")
    return name


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
