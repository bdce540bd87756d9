"""Sums of an optimizer step. They stay on the device until the step needs them, and then come in one transfer."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from tasks.core.learner.distributed.process_group import ProcessGroup


class PackStats(NamedTuple):
    """Sums over the rollouts of a pack: [] tensors on the policy's device, and numbers that the host knows."""

    loss: Tensor
    kl: Tensor
    """k3 estimate of KL(policy before || policy now), summed over the rollouts."""
    kl_stop: Tensor
    """The same by the estimator that may end the update."""
    clipped: Tensor
    """Importance units without a gradient, because their weight left the clip range."""
    value_loss: Tensor
    """A critic's, else 0."""
    units: int
    tokens: int
    """Positions passed forward and backward."""
    rollouts: int


@dataclass(frozen=True)
class StepStats:
    """Sums over one minibatch and all ranks, on the host."""

    loss: float
    kl: float
    """Mean over the rollouts of the k3 estimate of KL(policy before || policy now), in nats."""
    kl_stop: float
    """Absolute value of that mean by the estimator that may end the update (LOOP's code: |k1|), in nats."""
    clipped: int
    value_loss: float
    """Half the mean squared error of a critic over the policy tokens; 0 without one."""
    units: int
    tokens: int
    rollouts: int
    grad_norm: float
    """Before clipping."""

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.grad_norm)

    def allows_step(self, kl_limit: float) -> bool:
        """Whether the gradient is a number and the policy is still within `kl_limit` of the one before the update."""
        return self.is_finite and self.kl_stop <= kl_limit


def read_stats(packs: Sequence[PackStats], grad_norm: Tensor, group: ProcessGroup) -> StepStats:
    """The packs' sums, added in their order and then over the ranks (collective), with `grad_norm` [] of all of them.

    The only place in an optimizer step that waits for the device.
    """
    sums = grad_norm.new_zeros(5, dtype=torch.float64)
    for pack in packs:
        parts = (pack.loss, pack.kl, pack.kl_stop, pack.clipped, pack.value_loss)
        sums = sums + torch.stack([part.double() for part in parts])
    counts = [
        sum(pack.units for pack in packs),
        sum(pack.tokens for pack in packs),
        sum(pack.rollouts for pack in packs),
    ]
    everything = group.sum(torch.cat([sums, sums.new_tensor(counts)]))
    read: list[float] = torch.cat([everything, grad_norm[None].double()]).tolist()
    loss, kl, stop, clipped, value_loss, units, tokens, rollouts, norm = read
    return StepStats(
        loss=loss,
        kl=kl / rollouts,
        kl_stop=abs(stop / rollouts),
        clipped=int(clipped),
        value_loss=value_loss,
        units=int(units),
        tokens=int(tokens),
        rollouts=int(rollouts),
        grad_norm=norm,
    )
