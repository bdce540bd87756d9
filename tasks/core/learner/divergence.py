"""The search for the rollouts that broke a loss or a gradient. It is made for the error of a failed update only."""

from collections.abc import Iterable, Sequence

import torch
from torch import nn

from tasks.core.learner.distributed.process_group import ProcessGroup
from tasks.core.learner.distributed.sharding import full_tensor
from tasks.core.learner.objective.backward import backward
from tasks.core.learner.objective.objective import Objective
from tasks.core.learner.packing import TrainingPack


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
