"""The log-probs that stay fixed during an update: of the policy before it, of the base, of an older policy."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from tqdm import tqdm

from tasks.core.config.update import UpdateConfig
from tasks.policy_update.distributed.process_group import ALONE, Ranks
from tasks.policy_update.distributed.sharding import is_sharded
from tasks.policy_update.distributed.side_by_side import side_by_side
from tasks.policy_update.objective.logprobs import TokenFigures, token_figures
from tasks.policy_update.packing import Pack
from tasks.policy_update.rollouts import Rollout

BaseView = Callable[[], AbstractContextManager[nn.Module]]
"""Opens a view of the policy as its base model is (LoRA: the adapter switched off)."""
BehaviourView = Callable[[], AbstractContextManager[nn.Module]]
"""Opens a view of the policy as it was when it sampled the rollouts."""


@dataclass(frozen=True)
class Frozen:
    """Log-probs that do not change during an update, per rollout of the batch."""

    old: list[Tensor]
    """[P] each, of the policy before the update, recomputed by the learner."""
    base: list[Tensor] | None
    """[P] each, of the base policy; None without a KL term."""
    entropy: float
    """Mean over all policy tokens, in nats, of the policy before the update."""
    behaviour: list[Tensor] | None = None
    """[P] each, of the policy that sampled the rollouts, recomputed by the learner; None when that is `old`'s."""


def freeze(
    policy: nn.Module,
    packs: Sequence[Pack],
    rollouts: Sequence[Rollout],
    config: UpdateConfig,
    temperature: float,
    base_view: BaseView | None,
    ranks: Ranks = ALONE,
    behaviour_view: BehaviourView | None = None,
) -> Frozen:
    """Log-probs before the first step: of the policy, of the base for a KL term, of an older policy that sampled.

    `packs` are this rank's share of the batch `rollouts`; the result is of all of it.
    """
    settings = (packs, rollouts, config, temperature, ranks)
    old, entropies = _without_gradient(policy, *settings, entropy=True)
    base = None
    if config.loss.kl_coefficient > 0:
        if base_view is None:
            raise ValueError("loss.kl_coefficient > 0 needs the base policy")
        with base_view() as reference:
            base, _ = _without_gradient(reference, *settings, entropy=False)
    behaviour = None
    if behaviour_view is not None:
        with behaviour_view() as sampler:
            behaviour, _ = _without_gradient(sampler, *settings, entropy=False)
    return Frozen(old, base, torch.cat(entropies).mean().item(), behaviour)


def _without_gradient(
    policy: nn.Module,
    packs: Sequence[Pack],
    rollouts: Sequence[Rollout],
    config: UpdateConfig,
    temperature: float,
    ranks: Ranks,
    *,
    entropy: bool,
) -> tuple[list[Tensor], list[Tensor]]:
    """Log-probs (and entropies) of every rollout, in the order of the batch."""
    logprobs: dict[int, Tensor] = {}
    entropies: dict[int, Tensor] = {}

    @torch.no_grad()
    def of_pack(pack: Pack) -> TokenFigures:
        return token_figures(policy, pack, temperature, config.logprob_chunk, entropy=entropy)

    # The ranks gather a sharded policy's weights together, one pass after the other.
    results = map(of_pack, packs) if is_sharded(policy) else side_by_side(of_pack, packs, ranks.local_size)
    bar = tqdm(results, desc="log-probs", unit="pack", total=len(packs), leave=False, disable=not ranks.writes)
    for pack, figures in zip(packs, bar, strict=True):
        if pack.spare:
            continue
        sizes = torch.bincount(pack.owners).tolist()
        logprobs.update(zip(pack.rollouts, torch.split(figures.logprobs, sizes), strict=True))
        if figures.entropies is not None:
            entropies.update(zip(pack.rollouts, torch.split(figures.entropies, sizes), strict=True))
    return _of_all_ranks(logprobs, rollouts, ranks), _of_all_ranks(entropies, rollouts, ranks) if entropy else []


def _of_all_ranks(found: dict[int, Tensor], rollouts: Sequence[Rollout], ranks: Ranks) -> list[Tensor]:
    """[P] of every rollout: each rank puts its own beside zeros, so the sum over the ranks is exact."""
    if ranks.size == 1:
        return [found[row] for row in range(len(rollouts))]
    sizes = [len(rollout.sampled) for rollout in rollouts]
    flat = torch.zeros(sum(sizes), device=ranks.device)
    for row, place in enumerate(torch.split(flat, sizes)):
        if row in found:
            place.copy_(found[row])
    return list(torch.split(ranks.sum(flat), sizes))
