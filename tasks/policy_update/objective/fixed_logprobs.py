"""The log-probs that stay fixed during an update: of the policy before it, of the base, of an older policy."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from tqdm import tqdm

from tasks.core.config.update import UpdateConfig
from tasks.policy_update.distributed.process_group import SINGLE, ProcessGroup
from tasks.policy_update.distributed.sharding import is_sharded
from tasks.policy_update.objective.logprobs import TokenLogprobs, token_logprobs
from tasks.policy_update.objective.pack_threads import map_packs
from tasks.policy_update.packing import Pack
from tasks.policy_update.rollouts import Rollout

ReferenceView = Callable[[], AbstractContextManager[nn.Module]]
"""Opens a view of the policy as its base model is (LoRA: the adapter switched off)."""
BehaviourView = Callable[[], AbstractContextManager[nn.Module]]
"""Opens a view of the policy as it was when it sampled the rollouts."""


@dataclass(frozen=True)
class FixedLogprobs:
    """Log-probs that do not change during an update, per rollout of the batch."""

    old: list[Tensor]
    """[P] each, of the policy before the update, recomputed by the learner."""
    reference: list[Tensor] | None
    """[P] each, of the base policy; None without a KL term."""
    entropy: float
    """Mean over all policy tokens, in nats, of the policy before the update."""
    behaviour: list[Tensor] | None = None
    """[P] each, of the policy that sampled the rollouts, recomputed by the learner; None when that is `old`'s."""


def compute_fixed_logprobs(
    policy: nn.Module,
    packs: Sequence[Pack],
    rollouts: Sequence[Rollout],
    config: UpdateConfig,
    temperature: float,
    reference_view: ReferenceView | None,
    group: ProcessGroup = SINGLE,
    behaviour_view: BehaviourView | None = None,
) -> FixedLogprobs:
    """Log-probs before the first step: of the policy, of the base for a KL term, of an older policy that sampled.

    `packs` are this rank's share of the batch `rollouts`; the result is of all of it.
    """
    settings = (packs, rollouts, config, temperature, group)
    old, entropies = _without_gradient(policy, *settings, entropy=True)
    reference = None
    if config.loss.kl_coefficient > 0:
        if reference_view is None:
            raise ValueError("loss.kl_coefficient > 0 needs the base policy")
        with reference_view() as base:
            reference, _ = _without_gradient(base, *settings, entropy=False)
    behaviour = None
    if behaviour_view is not None:
        with behaviour_view() as sampler:
            behaviour, _ = _without_gradient(sampler, *settings, entropy=False)
    return FixedLogprobs(old, reference, torch.cat(entropies).mean().item(), behaviour)


def _without_gradient(
    policy: nn.Module,
    packs: Sequence[Pack],
    rollouts: Sequence[Rollout],
    config: UpdateConfig,
    temperature: float,
    group: ProcessGroup,
    *,
    entropy: bool,
) -> tuple[list[Tensor], list[Tensor]]:
    """Log-probs (and entropies) of every rollout, in the order of the batch."""
    logprobs: dict[int, Tensor] = {}
    entropies: dict[int, Tensor] = {}

    @torch.no_grad()
    def of_pack(pack: Pack) -> TokenLogprobs:
        return token_logprobs(policy, pack, temperature, config.logprob_chunk, entropy=entropy)

    # The ranks gather a sharded policy's weights together, one pass after the other.
    results = map(of_pack, packs) if is_sharded(policy) else map_packs(of_pack, packs, group.local_size)
    bar = tqdm(results, desc="log-probs", unit="pack", total=len(packs), leave=False, disable=not group.is_main)
    for pack, stats in zip(packs, bar, strict=True):
        if pack.is_padding:
            continue
        sizes = torch.bincount(pack.rollout_ids).tolist()
        logprobs.update(zip(pack.rollouts, torch.split(stats.logprobs, sizes), strict=True))
        if stats.entropies is not None:
            entropies.update(zip(pack.rollouts, torch.split(stats.entropies, sizes), strict=True))
    return _of_all_ranks(logprobs, rollouts, group), _of_all_ranks(entropies, rollouts, group) if entropy else []


def _of_all_ranks(found: dict[int, Tensor], rollouts: Sequence[Rollout], group: ProcessGroup) -> list[Tensor]:
    """[P] of every rollout: each rank puts its own beside zeros, so the sum over the ranks is exact."""
    if group.size == 1:
        return [found[row] for row in range(len(rollouts))]
    sizes = [len(rollout.policy_positions) for rollout in rollouts]
    flat = torch.zeros(sum(sizes), device=group.device)
    for row, place in enumerate(torch.split(flat, sizes)):
        if row in found:
            place.copy_(found[row])
    return list(torch.split(group.sum(flat), sizes))
