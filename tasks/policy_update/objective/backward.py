"""Gradients of the objective over packs. They are added in the order of the packs, whatever computed them."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from tasks.core.policies.loading import is_lora
from tasks.policy_update.distributed.process_group import SINGLE, ProcessGroup
from tasks.policy_update.distributed.sharding import is_sharded, set_gradient_sync
from tasks.policy_update.objective.pack_threads import map_packs, packs_side_by_side
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
    """Run loss, stats = objective(policy, pack); loss.backward() on each pack. Returns the stats, in the packs' order.

    Gradients are added over the ranks (collective). Padding packs take part and leave no stats. `beside`: weights of
    the objective that are trained too, whole on every rank.
    """
    if is_sharded(policy):
        stats = _backward_in_turn(policy, packs, objective)
        _add_over_ranks(beside, group)
    else:
        trained = [*(weight for weight in policy.parameters() if weight.requires_grad), *beside]
        if packs_side_by_side(packs, group.local_size) < 2:
            stats = _backward_in_turn(policy, packs, objective)
        else:
            stats = _backward_in_threads(policy, packs, objective, group, trained)
        _add_over_ranks(trained, group)
    return [found for found, pack in zip(stats, packs, strict=True) if not pack.is_padding]


def _backward_in_turn(policy: nn.Module, packs: Sequence[TrainingPack], objective: Loss) -> list[PackStats]:
    """One pack after the other, each gradient added to what is there: no second copy of them exists.

    Of a sharded policy all ranks do so side by side. An adapter's gradients are added over the ranks at the last pack;
    those of a fully trained policy at every one, because what was not added up yet lies whole on every rank.
    """
    found = []
    for number, pack in enumerate(packs):
        if is_sharded(policy):
            set_gradient_sync(policy, number == len(packs) - 1 or not is_lora(policy))
        loss, stats = objective(policy, pack)
        loss.backward()  # type: ignore[no-untyped-call]
        found.append(stats)
    return found


def _backward_in_threads(
    policy: nn.Module,
    packs: Sequence[TrainingPack],
    objective: Loss,
    group: ProcessGroup,
    trained: Sequence[nn.Parameter],
) -> list[PackStats]:
    """Some packs at a time, every one's gradients by themselves, added in the order of the packs."""

    def differentiate(pack: TrainingPack) -> tuple[PackStats, tuple[Tensor | None, ...]]:
        loss, stats = objective(policy, pack)
        return stats, torch.autograd.grad(loss, trained, allow_unused=True)

    found = []
    for stats, gradients in map_packs(differentiate, packs, group.local_size):
        _add_gradients(trained, gradients)
        found.append(stats)
    return found


def _add_gradients(trained: Sequence[nn.Parameter], gradients: Sequence[Tensor | None]) -> None:
    for weight, gradient in zip(trained, gradients, strict=True):
        if gradient is not None:
            weight.grad = gradient if weight.grad is None else weight.grad.add_(gradient)


def _add_over_ranks(trained: Sequence[nn.Parameter], group: ProcessGroup) -> None:
    """One tensor after the other: of all of them together there would be two copies more."""
    for weight in trained:
        if weight.grad is not None and group.size > 1:
            weight.grad.copy_(group.sum(weight.grad))
