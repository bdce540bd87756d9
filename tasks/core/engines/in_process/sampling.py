"""Drawing tokens so that a conversation's tokens do not depend on which other conversations share its batch."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def uniforms(seed: int, count: int) -> NDArray[np.float64]:
    """[count] float64 in [0, 1): the draws of one turn, one per token. Philox: cheap to start, the same anywhere."""
    return np.random.Generator(np.random.Philox(key=seed)).random(count)


def draw(
    logits: Tensor,
    temperature: Tensor,
    uniform: Tensor,
    top_k: Tensor | None = None,
    top_p: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Invert the distribution function of softmax(logits / temperature) at `uniform`; greedy where temperature is 0.

    logits: [B, V], any float dtype; temperature: [B] float32, >= 0; uniform: [B] float64 in [0, 1).
    top_k: [B] int64, 0 for all tokens; top_p: [B] float32 in (0, 1]: only the likeliest tokens are drawn (`truncated`).
    Returns ids [B] int64 and their natural log-probs [B] float32 in the distribution that was drawn from (greedy: in
    all of it, at temperature 1).
    """
    greedy = temperature == 0
    scale = torch.where(greedy, 1.0, temperature)[:, None]
    probabilities = torch.softmax(logits.float() / scale, dim=-1)
    if top_k is not None and top_p is not None and bool(((top_k > 0) | (top_p < 1)).any()):
        probabilities = torch.where(greedy[:, None], probabilities, truncated(probabilities, top_k, top_p))
    cumulative = probabilities.cumsum(dim=-1, dtype=torch.float64)
    target = uniform[:, None] * cumulative[:, -1:]
    # `right`: the first entry above the target, so that a token of probability 0 is never drawn.
    drawn = torch.searchsorted(cumulative, target, right=True).clamp_(max=logits.shape[-1] - 1)
    ids = torch.where(greedy[:, None], logits.argmax(dim=-1, keepdim=True), drawn) if greedy.any() else drawn
    return ids[:, 0], probabilities.gather(1, ids)[:, 0].log()


def truncated(probabilities: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """Keep each row's `top_k` likeliest tokens (0: all), of these the fewest that have `top_p` of what is left, and
    divide by their sum.

    probabilities: [B, V] float32; top_k: [B] int64; top_p: [B] float32. Returns [B, V] float32. Ties are kept whole by
    neither: the token of the lower id stays.
    """
    ordered, tokens = probabilities.sort(dim=-1, descending=True, stable=True)
    ranks = torch.arange(ordered.shape[-1], device=ordered.device)
    ordered = ordered * ((ranks < top_k[:, None]) | (top_k[:, None] == 0))
    ordered = ordered / ordered.sum(dim=-1, keepdim=True)
    before = ordered.cumsum(dim=-1, dtype=torch.float64) - ordered
    ordered = ordered * ((before < top_p[:, None]) | (top_p[:, None] >= 1))
    kept = torch.zeros_like(probabilities).scatter(-1, tokens, ordered)
    return kept / kept.sum(dim=-1, keepdim=True)
