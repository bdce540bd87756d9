"""Gradients of the objective over packs. They are added in the order of the packs, whatever computed them."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from tasks.policy_update.distributed.process_group import SINGLE, ProcessGroup
from tasks.policy_update.distributed.sharding import is_sharded, set_gradient_sync
from tasks.policy_update.objective.pack_threads import map_packs
from tasks.policy_update.objective.stats import PackStats
from tasks.policy_update.packing import TrainingPack

Loss = Callable[[nn.Module, TrainingPack], tuple[Tensor, PackStats]]
"""An `Objective`: [] the loss of a pack, and its sums."""


def backward(
    policy: nn.Module,
    packs: Sequence[TrainingPack],
    objective: Loss,
    group: ProcessGroup = SINGLE,
    beside: Sequence[nn.Parameter] = (),
) -> list[PackStats]:
    """For each pack: loss, stats = objective(policy, pack); loss.backward(). Returns the stats, in the packs' order.

    Gradients are added over the ranks (collective). Padding packs take part and leave no stats. `beside`: weights of
    the objective that are trained too, whole on every rank.
    """
    if is_sharded(policy):
        stats = _backward_sharded(policy, packs, objective)
        _add_over_ranks(beside, group)
    else:
        stats = _backward_in_threads(policy, packs, objective, group, beside)
    return [found for found, pack in zip(stats, packs, strict=True) if not pack.is_padding]


def _backward_sharded(policy: nn.Module, packs: Sequence[TrainingPack], objective: Loss) -> list[PackStats]:
    """All ranks side by side, one pack after the other; gradients are added over the ranks at the last one."""
    found = []
    for number, pack in enumerate(packs):
        set_gradient_sync(policy, number == len(packs) - 1)
        loss, stats = objective(policy, pack)
        loss.backward()  # type: ignore[no-untyped-call]
        found.append(stats)
    return found


def _backward_in_threads(
    policy: nn.Module,
    packs: Sequence[TrainingPack],
    objective: Loss,
    group: ProcessGroup,
    beside: Sequence[nn.Parameter],
) -> list[PackStats]:
    """Every pack's gradients by themselves, added in the order of the packs and then, in one tensor, over the ranks."""
    trained = [*(weight for weight in policy.parameters() if weight.requires_grad), *beside]

    def differentiate(pack: TrainingPack) -> tuple[PackStats, tuple[Tensor | None, ...]]:
        loss, stats = objective(policy, pack)
        return stats, torch.autograd.grad(loss, trained, allow_unused=True)

    found = []
    for stats, gradients in map_packs(differentiate, packs, group.local_size):
        _add_gradients(trained, gradients)
        found.append(stats)
    _add_over_ranks(trained, group)
    return found


def _add_gradients(trained: Sequence[nn.Parameter], gradients: Sequence[Tensor | None]) -> None:
    for weight, gradient in zip(trained, gradients, strict=True):
        if gradient is not None:
            weight.grad = gradient if weight.grad is None else weight.grad.add_(gradient)


def _add_over_ranks(trained: Sequence[nn.Parameter], group: ProcessGroup) -> None:
    if group.size == 1 or not trained:
        return
    found = [weight.grad for weight in trained if weight.grad is not None]
    total = group.sum(torch.cat([gradient.flatten() for gradient in found]))
    for gradient, part in zip(found, torch.split(total, [gradient.numel() for gradient in found]), strict=True):
        gradient.copy_(part.view_as(gradient))
