"""The engine's rows: which ids each conversation has, which of them are cached, and the state of its turn.

They are arrays over rows and positions, so that a decoding step takes a few vectorised operations for any batch.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.core.interfaces.engine import Generation, GenerationRequest


def uniforms(seed: int, count: int) -> NDArray[np.float64]:
    """Return the draws of one turn, one per token: [count] float64 in [0, 1).

    Philox starts quickly and gives the same numbers on every machine.
    """
    return np.random.Generator(np.random.Philox(key=seed)).random(count)


def draw(logits: Tensor, temperature: Tensor, uniform: Tensor, top_k: Tensor, top_p: Tensor) -> tuple[Tensor, Tensor]:
    """Invert the distribution function of softmax(logits / temperature) at `uniform`; greedy where temperature is 0.

    logits: [B, V], any float dtype; temperature: [B] float32, >= 0; uniform: [B] float64 in [0, 1). top_k: [B] int64, 0
    for all tokens; top_p: [B] float32 in (0, 1]: only the likeliest tokens are drawn (`truncated`). Returns ids [B]
    int64 and their natural log-probs [B] float32 in the distribution drawn from (greedy: the full distribution at
    temperature 1).
    """
    greedy = temperature == 0
    scale = torch.where(greedy, 1.0, temperature)[:, None]
    probabilities = torch.softmax(logits.float() / scale, dim=-1)
    limited = ~greedy & ((top_k > 0) | (top_p < 1))
    if limited.any():  # by a mask: another row's limit must not change a row's last bits
        probabilities[limited] = truncated(probabilities[limited], top_k[limited], top_p[limited])
    cumulative = probabilities.cumsum(dim=-1, dtype=torch.float64)
    target = uniform[:, None] * cumulative[:, -1:]
    # `right` finds the first entry above the target, so that a token of probability 0 is never drawn.
    drawn = torch.searchsorted(cumulative, target, right=True).clamp_(max=logits.shape[-1] - 1)
    ids = torch.where(greedy[:, None], logits.argmax(dim=-1, keepdim=True), drawn) if greedy.any() else drawn
    return ids[:, 0], probabilities.gather(1, ids)[:, 0].log()


def truncated(probabilities: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """Keep each row's `top_k` likeliest tokens (0: all), then the fewest of them that reach `top_p` of their sum.

    Divides by the sum of what is kept. probabilities: [B, V] float32; top_k: [B] int64; top_p: [B] float32. Returns [B,
    V] float32. Neither limit keeps ties together: the token with the lower id stays.
    """
    ordered, tokens = probabilities.sort(dim=-1, descending=True, stable=True)
    ranks = torch.arange(ordered.shape[-1], device=ordered.device)
    ordered = ordered * ((ranks < top_k[:, None]) | (top_k[:, None] == 0))
    ordered = ordered / ordered.sum(dim=-1, keepdim=True)
    before = ordered.cumsum(dim=-1, dtype=torch.float64) - ordered
    ordered = ordered * ((before < top_p[:, None]) | (top_p[:, None] >= 1))
    kept = torch.zeros_like(probabilities).scatter(-1, tokens, ordered)
    return kept / kept.sum(dim=-1, keepdim=True)


Rows = NDArray[np.int64]
_PER_POSITION = {"ids": np.int64, "logprobs": np.float32, "draws": np.float64}
_PER_ROW = {
    "known": np.int64,
    "cached": np.int64,
    "start": np.int64,
    "end": np.int64,
    "temperature": np.float32,
    "top_k": np.int64,
    "top_p": np.float32,
    "state": np.int8,
}
IDLE, QUEUED, SAMPLING = 0, 1, 2


class Conversations:
    """Rows 0 .. count-1, one per conversation. Removing a row moves the last row into its place.

    Per position [rows, capacity]: `ids`, and for sampled positions `logprobs` and the uniform `draws`. Per row: `known`
    ids, the first `cached` of which are in the key-value cache; the current turn fills `start` .. `end`-1.
    """

    ids: NDArray[np.int64]
    logprobs: NDArray[np.float32]
    draws: NDArray[np.float64]
    known: Rows
    cached: Rows
    start: Rows
    end: Rows
    temperature: NDArray[np.float32]
    top_k: Rows
    top_p: NDArray[np.float32]
    state: NDArray[np.int8]

    def __init__(self) -> None:
        self.names: list[str] = []
        self.row_of: dict[str, int] = {}
        self.stops: NDArray[np.int64] = np.full((0, 1), -1)
        for name, dtype in _PER_POSITION.items():
            setattr(self, name, np.zeros((0, 0), dtype))
        for name, dtype in _PER_ROW.items():
            setattr(self, name, np.zeros(0, dtype))

    @property
    def count(self) -> int:
        return len(self.names)

    @property
    def capacity(self) -> tuple[int, int]:
        """Rows and positions in the arrays; the last position is spare, for idle rows to write to."""
        return self.ids.shape[0], self.ids.shape[1]

    def rows(self, state: int) -> Rows:
        """Return the numbers of the rows in `state`, ascending."""
        return np.flatnonzero(self.state[: self.count] == state)

    def add(self, name: str) -> int:
        self.names.append(name)
        row = self.row_of[name] = self.count - 1
        self._reserve(self.count, 0)
        self.known[row] = self.cached[row] = self.state[row] = 0
        return row

    def queue(self, row: int, request: GenerationRequest, end: int) -> None:
        """Set up the turn of `request`. Ids that differ from the cached ids invalidate the cache from there on."""
        sampling, prompt = request.sampling, np.asarray(request.prompt_ids, dtype=np.int64)
        self._reserve(0, end + 1)
        kept = min(int(self.cached[row]), len(prompt) - 1)
        agreeing = self.ids[row, :kept] == prompt[:kept]
        self.cached[row] = kept if agreeing.all() else int(agreeing.argmin())
        self.ids[row, : len(prompt)] = prompt
        self.draws[row, len(prompt) : end] = uniforms(request.seed, end - len(prompt))
        self.known[row] = self.start[row] = len(prompt)
        self.end[row], self.temperature[row], self.state[row] = end, sampling.temperature, QUEUED
        self.top_k[row], self.top_p[row] = sampling.top_k, sampling.top_p
        missing = len(sampling.stop_ids) - self.stops.shape[1]
        if missing > 0:
            self.stops = np.pad(self.stops, ((0, 0), (0, missing)), constant_values=-1)
        self.stops[row] = -1
        self.stops[row, : len(sampling.stop_ids)] = sampling.stop_ids

    @torch.inference_mode()
    def sample(self, rows: Rows, logits: Tensor) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Draw the next id of each of `rows`, by its own settings, from logits [B, V]. Returns ids and log-probs."""
        settings = (self.temperature[rows], self.draws[rows, self.known[rows]], self.top_k[rows], self.top_p[rows])
        ids, logprobs = draw(logits, *(torch.from_numpy(setting).to(logits.device) for setting in settings))
        return ids.cpu().numpy(), logprobs.cpu().numpy()

    def append(self, rows: Rows, ids: NDArray[np.int64], logprobs: NDArray[np.float32]) -> Rows:
        """Add one sampled id to each of `rows`. Rows whose turn ends become idle and are returned."""
        positions = self.known[rows]
        self.ids[rows, positions], self.logprobs[rows, positions] = ids, logprobs
        self.known[rows] += 1
        self.cached[rows] += 1
        over = (self.stops[rows] == ids[:, None]).any(axis=1) | (self.known[rows] >= self.end[rows])
        finished: Rows = rows[over]
        self.state[finished] = IDLE
        return finished

    def generation(self, row: int) -> Generation:
        """Return the turn that `row` has just finished."""
        turn = slice(int(self.start[row]), int(self.known[row]))
        ids = self.ids[row, turn].tolist()
        reason: Any = "stop" if ids[-1] in self.stops[row] else "length"
        return Generation(self.names[row], tuple(ids), tuple(self.logprobs[row, turn].tolist()), reason)

    def remove(self, name: str) -> tuple[int, int] | None:
        """Forget a conversation. Returns (from, to) if another row took its place."""
        row, last = self.row_of.pop(name), self.count - 1
        moved = self.names.pop()
        if row == last:
            return None
        for array in (*_PER_POSITION, *_PER_ROW, "stops"):
            getattr(self, array)[row] = getattr(self, array)[last]
        self.names[row], self.row_of[moved] = moved, row
        return last, row

    def shared_prefix(self, row: int, limit: int) -> tuple[Rows, Rows]:
        """Return how many leading ids (at most `limit`) each row shares with `row`: known ids, and cached ids."""
        agree = self.ids[: self.count, :limit] == self.ids[row, :limit]
        shared = np.logical_and.accumulate(agree, axis=1).sum(axis=1)
        return np.minimum(shared, self.known[: self.count]), np.minimum(shared, self.cached[: self.count])

    def _reserve(self, rows: int, positions: int) -> None:
        """Grow the arrays by doubling (rows) or by half (positions), so that growth is rare."""
        held = self.capacity
        if rows <= held[0] and positions <= held[1]:
            return
        target = (
            held[0] if rows <= held[0] else max(rows, 2 * held[0], 16),
            held[1] if positions <= held[1] else positions + positions // 2,
        )
        for name in _PER_POSITION:
            setattr(self, name, _padded(getattr(self, name), target))
        for name in _PER_ROW:
            setattr(self, name, _padded(getattr(self, name), target[:1]))
        self.stops = np.pad(self.stops, ((0, target[0] - len(self.stops)), (0, 0)), constant_values=-1)


def _padded(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    return np.pad(array, [(0, wanted - held) for wanted, held in zip(shape, array.shape, strict=True)])
