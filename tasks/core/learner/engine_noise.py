"""Differences that rounding alone makes between an engine's log-probs and the learner's, by the policy's dtype.

Measured by tests/benchmarks/bfloat16_noise.py: an engine and the learner on the same tokens and weights.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn


class EngineNoise(NamedTuple):
    """Bounds of what rounding explains; a larger difference has another cause."""

    token: float
    """|engine - learner| of a single token, in nats."""
    mean: float
    """Mean over the tokens of an update."""


ENGINE_NOISE = {torch.float32: EngineNoise(1e-2, 1e-3), torch.bfloat16: EngineNoise(0.5, 0.1)}
"""bfloat16: one and a half times the largest difference measured for a token (0.35), three times the mean (0.03 to
0.04). float32, where 3e-5 and 5e-6 were measured: the differences that begin to matter for a clip range of 0.1.
"""


EXACT = 1e-4
"""Largest difference of a token's log-prob, in nats, between two float32 computations of one function."""


def difference(actual: Sequence[Tensor], expected: Sequence[Tensor], dtype: torch.dtype) -> float | None:
    """Return by how many nats log-probs of a policy in `dtype` differ; None if rounding explains the difference.

    In float32 the largest difference of a token counts; in bfloat16 the mean, since a mixture of experts may round a
    token to another expert.
    """
    apart = (torch.cat(list(actual)).double().cpu() - torch.cat(list(expected)).double().cpu()).abs()
    mean, largest = float(apart.mean()), float(apart.max())
    if dtype != torch.float32:
        return None if mean <= ENGINE_NOISE[dtype].mean else mean
    return None if largest <= EXACT else largest


def engine_noise(policy: nn.Module) -> EngineNoise:
    """Return the noise of the dtype in which `policy` computes; its adapter's dtype may differ."""
    return ENGINE_NOISE[next(policy.parameters()).dtype]
