"""Gradients of an update's packs, and the search for the rollouts that broke a loss or a gradient.

The search runs only to write the error of an update that failed.
"""

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
"""An `Objective`: returns the loss [] of a pack, and the pack's sums."""


def backward(
    policy: nn.Module,
    packs: Sequence[TrainingPack],
    objective: Loss,
    group: ProcessGroup = SINGLE,
    beside: Sequence[nn.Parameter] = (),
) -> list[PackStats]:
    """Run loss, stats = objective(policy, pack); loss.backward() on each pack. Return the stats, in the packs' order.

    Gradients are added over the ranks (collective). Padding packs take part and leave no stats. `beside`: further
    weights that the objective trains, each whole on every rank.
    """
    trained = [*(weight for weight in policy.parameters() if weight.requires_grad), *beside]
    if is_sharded(policy):
        stats = _backward_sharded(policy, packs, objective)
        _add_over_ranks(beside, group)
    else:
        stats = add_gradients(partial(objective, policy), packs, trained, group.local_size)
        _add_over_ranks(trained, group)
    return [stat for stat, pack in zip(stats, packs, strict=True) if not pack.is_padding]


def _backward_sharded(policy: nn.Module, packs: Sequence[TrainingPack], objective: Loss) -> list[PackStats]:
    """Run one pack after the other; all ranks run side by side.

    The ranks add an adapter's gradients up at the last pack, and those of a fully trained policy at every pack, because
    gradients that are not added up yet lie whole on every rank.
    """
    pack_stats = []
    for number, pack in enumerate(packs):
        set_gradient_sync(policy, number == len(packs) - 1 or not is_lora(policy))
        loss, stats = objective(policy, pack)
        loss.backward()  # type: ignore[no-untyped-call]
        pack_stats.append(stats)
    return pack_stats


def _add_over_ranks(trained: Sequence[nn.Parameter], group: ProcessGroup) -> None:
    """Add gradients over the ranks one tensor at a time: adding all at once would need two more copies of them."""
    for weight in trained:
        if weight.grad is not None and group.size > 1:
            weight.grad.copy_(group.sum(weight.grad))


def rollouts_not_finite(
    policy: nn.Module, packs: Sequence[TrainingPack], objective: Objective, batch: int, group: ProcessGroup
) -> list[int]:
    """Return the rows, of `batch` rows, whose own loss is not finite, else those whose own gradient is not.

    `packs` hold one rollout each, so each gets a pass of its own. Several ranks pass one rollout each and add their
    gradients up, so all rollouts of a round that failed are named (collective). Leaves no gradient behind.
    """
    losses: list[int] = []
    gradients: list[int] = []
    for pack in packs:
        policy.zero_grad(set_to_none=True)
        stats = backward(policy, [pack], objective, group)
        grads = [weight.grad for weight in policy.parameters() if weight.grad is not None]
        norm = full_tensor(nn.utils.get_total_norm(grads))
        losses += [row for stat in stats for row in pack.rows if not stat.loss.isfinite()]
        gradients += [row for _ in stats for row in pack.rows if not norm.isfinite()]
    policy.zero_grad(set_to_none=True)
    return _on_any_rank(losses, batch, group) or _on_any_rank(gradients, batch, group)


def _on_any_rank(rows: Iterable[int], batch: int, group: ProcessGroup) -> list[int]:
    marks = torch.zeros(batch)
    marks[list(rows)] = 1
    return [int(row) for row in group.sum(marks).nonzero().flatten()]
