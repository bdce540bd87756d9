"""The search for the rollouts that broke a loss or a gradient. It is made for the error of a failed update only."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from tasks.core.learner.distributed import SINGLE, ProcessGroup, full_tensor, is_sharded, set_gradient_sync
from tasks.core.learner.objective import Objective, PackStats
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


def rollouts_not_finite(
    policy: nn.Module, packs: Sequence[TrainingPack], objective: Objective, batch: int, group: ProcessGroup
) -> list[int]:
    """Rows, of `batch` rows, whose loss alone is not finite, else those whose gradient alone is not; may be none.

    `packs` hold one rollout each: a pass of its own for every one. Several ranks pass one each and add the gradients
    up, so all rollouts of such a round are named (collective). Leaves no gradient behind.
    """
    losses: list[int] = []
    gradients: list[int] = []
    for pack in packs:
        policy.zero_grad(set_to_none=True)
        stats = backward(policy, [pack], objective, group)
        found = [weight.grad for weight in policy.parameters() if weight.grad is not None]
        norm = full_tensor(nn.utils.get_total_norm(found))
        losses += [row for one in stats for row in pack.rows if not one.loss.isfinite()]
        gradients += [row for _ in stats for row in pack.rows if not norm.isfinite()]
    policy.zero_grad(set_to_none=True)
    return _on_any_rank(losses, batch, group) or _on_any_rank(gradients, batch, group)


def _on_any_rank(rows: Iterable[int], batch: int, group: ProcessGroup) -> list[int]:
    marks = torch.zeros(batch)
    marks[list(rows)] = 1
    return [int(row) for row in group.sum(marks).nonzero().flatten()]
