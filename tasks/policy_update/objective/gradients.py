"""Gradients of the objective over packs. They are added in the order of the packs, whatever computed them."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from tasks.core.config.update import UpdateConfig
from tasks.policy_update.distributed.process_group import SINGLE, ProcessGroup
from tasks.policy_update.distributed.sharding import backward_in_step, full_tensor, is_sharded
from tasks.policy_update.objective.fixed_logprobs import FixedLogprobs
from tasks.policy_update.objective.logprobs import token_logprobs
from tasks.policy_update.objective.losses import clipped_objective, k3, mean_by_rollout, sum_by_rollout
from tasks.policy_update.objective.pack_threads import map_packs
from tasks.policy_update.packing import Pack, pack_rollouts
from tasks.policy_update.rollouts import Rollout


@dataclass
class StepStats:
    """What one minibatch added up to, over all ranks."""

    loss: float = 0.0
    kl: float = 0.0
    clipped: int = 0
    units: int = 0
    tokens: int = 0
    rollouts: int = 0
    grad_norm: float = 0.0
    not_finite: list[int] = field(default_factory=list)
    """Rollouts of the batch whose objective is not a finite number."""

    def add(self, other: "StepStats") -> None:
        """Add the sums of one pack."""
        for name in (*_SUMS, "not_finite"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def add_up_over(self, group: ProcessGroup, batch: int) -> None:
        """Make the sums those of all ranks (collective); `batch` is the number of rollouts of the batch."""
        sums = torch.tensor([getattr(self, name) for name in _SUMS], dtype=torch.float64)
        for name, value in zip(_SUMS, group.sum(sums).tolist(), strict=True):
            setattr(self, name, type(getattr(self, name))(value))
        if not math.isfinite(self.loss):
            marks = torch.zeros(batch)
            marks[self.not_finite] = 1
            self.not_finite = group.sum(marks).nonzero().flatten().tolist()


_SUMS = ("loss", "kl", "clipped", "units", "tokens", "rollouts")


def accumulate_gradients(
    policy: nn.Module,
    packs: Sequence[Pack],
    rollouts: Sequence[Rollout],
    fixed: FixedLogprobs,
    config: UpdateConfig,
    loss_denominator: int,
    temperature: float,
    group: ProcessGroup = SINGLE,
) -> StepStats:
    """Add the gradient of -objective / `loss_denominator` over all packs of all ranks to the parameters' `.grad`."""

    def loss_of(pack: Pack) -> tuple[StepStats, Tensor]:
        stats, values = _objective(policy, pack, rollouts, fixed, config, temperature)
        loss = -values.sum() / loss_denominator
        if pack.is_padding:
            return StepStats(), loss * 0
        stats.loss = loss.item()
        if not math.isfinite(stats.loss):
            bad = (~values.isfinite()).tolist()
            stats.not_finite = [row for row, is_bad in zip(pack.rollouts, bad, strict=True) if is_bad]
        return stats, loss

    total = StepStats()
    backward = backward_in_step if is_sharded(policy) else partial(_backward_apart, group=group)
    for stats in backward(policy, packs, loss_of):
        total.add(stats)
    if group.size > 1:
        total.add_up_over(group, len(rollouts))
    total.kl /= total.rollouts
    return total


def without_finite_gradient(
    policy: nn.Module,
    chosen: Sequence[int],
    rollouts: Sequence[Rollout],
    fixed: FixedLogprobs,
    config: UpdateConfig,
    loss_denominator: int,
    temperature: float,
    group: ProcessGroup,
) -> list[int]:
    """Those of the `chosen` rollouts whose gradient alone has no finite norm.

    For the error of an update that has failed: a pass of its own for every rollout. Several ranks pass one each and add
    the gradients up, so all rollouts of such a round are named. Leaves no gradient behind.
    """
    trained = [weight for weight in policy.parameters() if weight.requires_grad]
    marks = torch.zeros(len(rollouts))
    policy.zero_grad(set_to_none=True)
    for pack in pack_rollouts(rollouts, chosen, 1, trained[0].device, group):
        accumulate_gradients(policy, [pack], rollouts, fixed, config, loss_denominator, temperature, group)
        norm = full_tensor(nn.utils.get_total_norm([weight.grad for weight in trained if weight.grad is not None]))
        if not pack.is_padding and not norm.isfinite():
            marks[list(pack.rollouts)] = 1
        policy.zero_grad(set_to_none=True)
    return [int(row) for row in group.sum(marks).nonzero().flatten()]


def _backward_apart(
    policy: nn.Module, packs: Sequence[Pack], loss_of: Callable[[Pack], tuple[StepStats, Tensor]], group: ProcessGroup
) -> Iterator[StepStats]:
    """Every pack's gradients by themselves, added in the order of the packs and then, in one tensor, over the ranks."""
    trained = [weight for weight in policy.parameters() if weight.requires_grad]

    def of_pack(pack: Pack) -> tuple[StepStats, tuple[Tensor | None, ...]]:
        stats, loss = loss_of(pack)
        return stats, torch.autograd.grad(loss, trained, allow_unused=True)

    for stats, gradients in map_packs(of_pack, packs, group.local_size):
        _add_gradients(trained, gradients)
        yield stats
    if group.size > 1:
        found = [weight.grad for weight in trained if weight.grad is not None]
        total = group.sum(torch.cat([gradient.flatten() for gradient in found]))
        for gradient, part in zip(found, torch.split(total, [gradient.numel() for gradient in found]), strict=True):
            gradient.copy_(part.view_as(gradient))


def _add_gradients(trained: Sequence[nn.Parameter], gradients: Sequence[Tensor | None]) -> None:
    for weight, gradient in zip(trained, gradients, strict=True):
        if gradient is not None:
            weight.grad = gradient if weight.grad is None else weight.grad.add_(gradient)


def _objective(
    policy: nn.Module,
    pack: Pack,
    rollouts: Sequence[Rollout],
    fixed: FixedLogprobs,
    config: UpdateConfig,
    temperature: float,
) -> tuple[StepStats, Tensor]:
    """[R] the objective of each rollout of the pack."""
    terms = config.loss
    count = len(pack.rollouts)
    new = token_logprobs(policy, pack, temperature, config.logprob_chunk, entropy=terms.entropy_coefficient > 0)
    old = _gather(fixed.old, pack)
    log_ratios = new.logprobs - old
    to_behaviour = None if fixed.behaviour is None else old - _gather(fixed.behaviour, pack)
    advantages = new.logprobs.new_tensor([rollouts[row].advantage for row in pack.rollouts])
    objective = clipped_objective(log_ratios, pack.rollout_ids, pack.turns, advantages, terms, to_behaviour)
    values = objective.values
    if fixed.reference is not None:
        to_base = k3(_gather(fixed.reference, pack) - new.logprobs)
        values = values - terms.kl_coefficient * mean_by_rollout(to_base, pack.rollout_ids, count)
    if new.entropies is not None:
        values = values + terms.entropy_coefficient * mean_by_rollout(new.entropies, pack.rollout_ids, count)
    stats = StepStats(
        kl=sum_by_rollout(k3(log_ratios.detach()), pack.rollout_ids, count).sum().item(),
        clipped=int(objective.clipped),
        units=objective.units,
        tokens=sum(pack.lengths),
        rollouts=count,
    )
    return stats, values


def _gather(per_rollout: list[Tensor], pack: Pack) -> Tensor:
    return torch.cat([per_rollout[row] for row in pack.rollouts])
