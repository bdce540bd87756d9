"""Float32 copies of trained weights of lower precision, which the optimizer steps in their place.

A step of AdamW is about as large as the learning rate. A bfloat16 weight of 0.02 has neighbours 1e-4 apart, so that
steps of 1e-5 are rounded away, and so is the decay of a bfloat16 second moment (Micikevicius et al., arXiv 1710.03740,
section 3.1).
"""

from collections.abc import Iterable

import torch
from torch import nn

Masters = dict[nn.Parameter, nn.Parameter]
"""By the policy's weight. A sharded weight's master is this rank's part of it."""


def make_masters(trained: Iterable[nn.Parameter]) -> Masters:
    """One for each weight that is not float32: none of an adapter."""
    return {weight: nn.Parameter(weight.detach().float()) for weight in trained if weight.dtype != torch.float32}


def move_gradients(masters: Masters) -> None:
    """Move gradients from the weights to their masters, in float32."""
    for weight, master in masters.items():
        master.grad = None if weight.grad is None else weight.grad.float()
        weight.grad = None


@torch.no_grad()
def round_masters(masters: Masters) -> None:
    """Give the policy's weights their masters' values, rounded."""
    for weight, master in masters.items():
        weight.copy_(master)
        master.grad = None
