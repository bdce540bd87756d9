"""Drawing tokens so that a conversation's tokens do not depend on which other conversations share its batch."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def uniforms(seed: int, count: int) -> NDArray[np.float64]:
    """[count] float64 in [0, 1): the draws of one turn, one per token. Philox: cheap to start, the same anywhere."""
    return np.random.Generator(np.random.Philox(key=seed)).random(count)


def draw(logits: Tensor, temperature: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Invert the distribution function of softmax(logits / temperature) at `uniform`; greedy where temperature is 0.

    logits: [B, V], any float dtype; temperature: [B] float32, >= 0; uniform: [B] float64 in [0, 1).
    Returns ids [B] int64 and their natural log-probs [B] float32 at that temperature (greedy: at temperature 1).
    """
    greedy = temperature == 0
    scale = torch.where(greedy, 1.0, temperature)[:, None]
    probabilities = torch.softmax(logits.float() / scale, dim=-1)
    cumulative = probabilities.cumsum(dim=-1, dtype=torch.float64)
    target = uniform[:, None] * cumulative[:, -1:]
    # `right`: the first entry above the target, so that a token of probability 0 is never drawn.
    drawn = torch.searchsorted(cumulative, target, right=True).clamp_(max=logits.shape[-1] - 1)
    ids = torch.where(greedy[:, None], logits.argmax(dim=-1, keepdim=True), drawn) if greedy.any() else drawn
    return ids[:, 0], probabilities.gather(1, ids)[:, 0].log()
