"""The log-probs that stay fixed during an update: of the policy before it, and of the base policy."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from tqdm import tqdm

from tasks.policy_update.distributed.process_group import SINGLE, ProcessGroup
from tasks.policy_update.distributed.sharding import is_sharded
from tasks.policy_update.objective.logprobs import TokenLogprobs
from tasks.policy_update.objective.objective import Objective
from tasks.policy_update.objective.pack_threads import map_packs
from tasks.policy_update.packing import Pack, TrainingPack
from tasks.policy_update.rollouts import Rollout

ReferenceView = Callable[[], AbstractContextManager[nn.Module]]
"""Opens a view of the policy as its base model is (LoRA: the adapter switched off)."""


@dataclass(frozen=True)
class FixedLogprobs:
    """Log-probs that do not change during an update, per rollout of the batch."""

    old: list[Tensor]
    """[P] each, of the policy before the update, computed by the learner."""
    reference: list[Tensor] | None
    """[P] each, of the base policy; None without a KL term."""
    entropy: float
    """Mean over all policy tokens, in nats, of the policy before the update."""

    def attach(self, packs: Iterable[Pack]) -> list[TrainingPack]:
        """The packs with the log-probs of their rollouts."""
        return [
            TrainingPack(
                **vars(pack),
                old_logprobs=torch.cat([self.old[row] for row in pack.rows]),
                reference_logprobs=None
                if self.reference is None
                else torch.cat([self.reference[row] for row in pack.rows]),
            )
            for pack in packs
        ]


def compute_fixed_logprobs(
    policy: nn.Module,
    packs: Sequence[Pack],
    rollouts: Sequence[Rollout],
    objective: Objective,
    reference_view: ReferenceView | None = None,
    group: ProcessGroup = SINGLE,
) -> FixedLogprobs:
    """Log-probs before the first step: of the policy, and of the base policy for a KL term.

    `packs` are this rank's share of the batch `rollouts`; the result is of all of it (collective). Raises ValueError
    when a KL term has no base policy.
    """
    old, entropies = _logprobs(policy, packs, rollouts, objective, group, entropy=True)
    reference = None
    if objective.loss.kl_coefficient > 0:
        if reference_view is None:
            raise ValueError("loss.kl_coefficient > 0 needs the base policy")
        with reference_view() as base:
            reference, _ = _logprobs(base, packs, rollouts, objective, group, entropy=False)
    return FixedLogprobs(old, reference, torch.cat(entropies).mean().item())


def _logprobs(
    policy: nn.Module,
    packs: Sequence[Pack],
    rollouts: Sequence[Rollout],
    objective: Objective,
    group: ProcessGroup,
    *,
    entropy: bool,
) -> tuple[list[Tensor], list[Tensor]]:
    """Log-probs (and entropies) of every rollout, in the order of the batch, without gradients."""

    @torch.no_grad()
    def run(pack: Pack) -> TokenLogprobs:
        return objective.logprobs(policy, pack, entropy=entropy)

    # The ranks gather a sharded policy's weights together, one pass after the other.
    results = map(run, packs) if is_sharded(policy) else map_packs(run, packs, group.local_size)
    bar = tqdm(results, desc="log-probs", unit="pack", total=len(packs), leave=False, disable=not group.is_main)
    logprobs: dict[int, Tensor] = {}
    entropies: dict[int, Tensor] = {}
    for pack, found in zip(packs, bar, strict=True):
        if pack.is_padding:
            continue
        logprobs.update(zip(pack.rows, torch.split(found.logprobs, pack.policy_tokens), strict=True))
        if found.entropies is not None:
            entropies.update(zip(pack.rows, torch.split(found.entropies, pack.policy_tokens), strict=True))
    return _gathered(logprobs, rollouts, group), _gathered(entropies, rollouts, group) if entropy else []


def _gathered(found: dict[int, Tensor], rollouts: Sequence[Rollout], group: ProcessGroup) -> list[Tensor]:
    """[P] of every rollout: each rank puts its own beside zeros, so the sum over the ranks is exact."""
    if group.size == 1:
        return [found[row] for row in range(len(rollouts))]
    sizes = [len(rollout.policy_positions) for rollout in rollouts]
    flat = torch.zeros(sum(sizes), device=group.device)
    for row, place in enumerate(torch.split(flat, sizes)):
        if row in found:
            place.copy_(found[row])
    return list(torch.split(group.sum(flat), sizes))
