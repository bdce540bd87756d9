"""Gradients of the objective over packs. They are added in the order of the packs, whatever computed them."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from tasks.core.config.update import UpdateConfig
from tasks.policy_update.distributed.process_group import ALONE, Ranks
from tasks.policy_update.distributed.sharding import backward_in_step, is_sharded, whole
from tasks.policy_update.distributed.side_by_side import side_by_side
from tasks.policy_update.objective.fixed_logprobs import Frozen
from tasks.policy_update.objective.logprobs import token_figures
from tasks.policy_update.objective.losses import clipped_objective, k3, mean_by_rollout, sum_by_rollout
from tasks.policy_update.packing import Pack, pack_rollouts
from tasks.policy_update.rollouts import Rollout


@dataclass
class StepFigures:
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

    def add(self, other: "StepFigures") -> None:
        """Add the sums of one pack."""
        for name in (*_SUMS, "not_finite"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def add_up_over(self, ranks: Ranks, batch: int) -> None:
        """Make the sums those of all ranks (collective); `batch` is the number of rollouts of the batch."""
        sums = torch.tensor([getattr(self, name) for name in _SUMS], dtype=torch.float64)
        for name, value in zip(_SUMS, ranks.sum(sums).tolist(), strict=True):
            setattr(self, name, type(getattr(self, name))(value))
        if not math.isfinite(self.loss):
            marks = torch.zeros(batch)
            marks[self.not_finite] = 1
            self.not_finite = ranks.sum(marks).nonzero().flatten().tolist()


_SUMS = ("loss", "kl", "clipped", "units", "tokens", "rollouts")


def accumulate_gradients(
    policy: nn.Module,
    packs: Sequence[Pack],
    rollouts: Sequence[Rollout],
    frozen: Frozen,
    config: UpdateConfig,
    nominal: int,
    temperature: float,
    ranks: Ranks = ALONE,
) -> StepFigures:
    """Add the gradient of -objective / `nominal` over all packs of all ranks to the parameters' `.grad`."""

    def loss_of(pack: Pack) -> tuple[StepFigures, Tensor]:
        figures, values = _objective(policy, pack, rollouts, frozen, config, temperature)
        loss = -values.sum() / nominal
        if pack.spare:
            return StepFigures(), loss * 0
        figures.loss = loss.item()
        if not math.isfinite(figures.loss):
            bad = (~values.isfinite()).tolist()
            figures.not_finite = [row for row, is_bad in zip(pack.rollouts, bad, strict=True) if is_bad]
        return figures, loss

    total = StepFigures()
    backward = backward_in_step if is_sharded(policy) else partial(_backward_apart, ranks=ranks)
    for figures in backward(policy, packs, loss_of):
        total.add(figures)
    if ranks.size > 1:
        total.add_up_over(ranks, len(rollouts))
    total.kl /= total.rollouts
    return total


def without_finite_gradient(
    policy: nn.Module,
    chosen: Sequence[int],
    rollouts: Sequence[Rollout],
    frozen: Frozen,
    config: UpdateConfig,
    nominal: int,
    temperature: float,
    ranks: Ranks,
) -> list[int]:
    """Those of the `chosen` rollouts whose gradient alone has no finite norm.

    For the error of an update that has failed: a pass of its own for every rollout. Several ranks pass one each and add
    the gradients up, so all rollouts of such a round are named. Leaves no gradient behind.
    """
    trained = [weight for weight in policy.parameters() if weight.requires_grad]
    marks = torch.zeros(len(rollouts))
    policy.zero_grad(set_to_none=True)
    for pack in pack_rollouts(rollouts, chosen, 1, trained[0].device, ranks):
        accumulate_gradients(policy, [pack], rollouts, frozen, config, nominal, temperature, ranks)
        norm = whole(nn.utils.get_total_norm([weight.grad for weight in trained if weight.grad is not None]))
        if not pack.spare and not norm.isfinite():
            marks[list(pack.rollouts)] = 1
        policy.zero_grad(set_to_none=True)
    return [int(row) for row in ranks.sum(marks).nonzero().flatten()]


def _backward_apart(
    policy: nn.Module, packs: Sequence[Pack], loss_of: Callable[[Pack], tuple[StepFigures, Tensor]], ranks: Ranks
) -> Iterator[StepFigures]:
    """Every pack's gradients by themselves, added in the order of the packs and then, in one tensor, over the ranks."""
    trained = [weight for weight in policy.parameters() if weight.requires_grad]

    def of_pack(pack: Pack) -> tuple[StepFigures, tuple[Tensor | None, ...]]:
        figures, loss = loss_of(pack)
        return figures, torch.autograd.grad(loss, trained, allow_unused=True)

    for figures, gradients in side_by_side(of_pack, packs, ranks.local_size):
        _add_gradients(trained, gradients)
        yield figures
    if ranks.size > 1:
        found = [weight.grad for weight in trained if weight.grad is not None]
        total = ranks.sum(torch.cat([gradient.flatten() for gradient in found]))
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
    frozen: Frozen,
    config: UpdateConfig,
    temperature: float,
) -> tuple[StepFigures, Tensor]:
    """[R] the objective of each rollout of the pack."""
    terms = config.loss
    count = len(pack.rollouts)
    new = token_figures(policy, pack, temperature, config.logprob_chunk, entropy=terms.entropy_coefficient > 0)
    old = _gather(frozen.old, pack)
    log_ratios = new.logprobs - old
    to_behaviour = None if frozen.behaviour is None else old - _gather(frozen.behaviour, pack)
    advantages = new.logprobs.new_tensor([rollouts[row].advantage for row in pack.rollouts])
    objective = clipped_objective(log_ratios, pack.owners, pack.turns, advantages, terms, to_behaviour)
    values = objective.values
    if frozen.base is not None:
        to_base = k3(_gather(frozen.base, pack) - new.logprobs)
        values = values - terms.kl_coefficient * mean_by_rollout(to_base, pack.owners, count)
    if new.entropies is not None:
        values = values + terms.entropy_coefficient * mean_by_rollout(new.entropies, pack.owners, count)
    figures = StepFigures(
        kl=sum_by_rollout(k3(log_ratios.detach()), pack.owners, count).sum().item(),
        clipped=int(objective.clipped),
        units=objective.units,
        tokens=sum(pack.lengths),
        rollouts=count,
    )
    return figures, values


def _gather(per_rollout: list[Tensor], pack: Pack) -> Tensor:
    return torch.cat([per_rollout[row] for row in pack.rollouts])
