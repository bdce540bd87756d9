"""Gradients of the objective over packs. They are added in the order of the packs, whatever computed them."""

from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor, nn

from tasks.core.learner.distributed.process_group import SINGLE, ProcessGroup
from tasks.core.learner.distributed.sharding import is_sharded, set_gradient_sync
from tasks.core.learner.objective.stats import PackStats
from tasks.core.learner.packing import TrainingPack
from tasks.core.policies.loading import is_lora
from tasks.core.policies.pass_threads import add_gradients

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
    trained = [*(weight for weight in policy.parameters() if weight.requires_grad), *beside]
    if is_sharded(policy):
        stats = _backward_sharded(policy, packs, objective)
        _add_over_ranks(beside, group)
    else:
        stats = add_gradients(partial(objective, policy), packs, trained, group.local_size)
        _add_over_ranks(trained, group)
    return [found for found, pack in zip(stats, packs, strict=True) if not pack.is_padding]


def _backward_sharded(policy: nn.Module, packs: Sequence[TrainingPack], objective: Loss) -> list[PackStats]:
    """One pack after the other, all ranks side by side.

    An adapter's gradients are added over the ranks at the last pack; those of a fully trained policy at every one,
    because what was not added up yet lies whole on every rank.
    """
    found = []
    for number, pack in enumerate(packs):
        set_gradient_sync(policy, number == len(packs) - 1 or not is_lora(policy))
        loss, stats = objective(policy, pack)
        loss.backward()  # type: ignore[no-untyped-call]
        found.append(stats)
    return found


def _add_over_ranks(trained: Sequence[nn.Parameter], group: ProcessGroup) -> None:
    """One tensor after the other: of all of them together there would be two copies more."""
    for weight in trained:
        if weight.grad is not None and group.size > 1:
            weight.grad.copy_(group.sum(weight.grad))
