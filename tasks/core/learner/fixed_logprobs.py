"""Values that stay fixed during an update: log-probs of the old and the base policy, and a critic's credit."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from tasks.core.learner.credit import Credit, Floats
from tasks.core.learner.distributed import SINGLE, ProcessGroup
from tasks.core.learner.logprobs import map_packs
from tasks.core.learner.objective import Objective
from tasks.core.learner.packing import Pack, TrainingPack
from tasks.core.learner.rollouts import Rollout

ReferenceView = Callable[[], AbstractContextManager[nn.Module]]
"""Opens a view of the policy as its base model is (LoRA: with the adapter switched off). The caller drops its
reference to the view before closing it.
"""


@dataclass(frozen=True)
class FixedLogprobs:
    """Log-probs that do not change during an update, per rollout of the batch."""

    old: list[Tensor]
    """[P] for each rollout: by the policy before the update, computed by the learner."""
    reference: list[Tensor] | None
    """[P] for each rollout: by the base policy; None where the objective does not use it."""
    entropy: float
    """Mean over all policy tokens, in nats, for the policy before the update."""
    credit: list[Credit] | None = None
    """Each rollout's credit, by the critic as it was before the update; its advantages replace the batch's."""

    def attach(self, packs: Iterable[Pack]) -> list[TrainingPack]:
        """Return the packs with the fixed values of their rollouts."""
        return [self._attached(pack) for pack in packs]

    def _attached(self, pack: Pack) -> TrainingPack:
        old = torch.cat([self.old[row] for row in pack.rows])
        reference = None if self.reference is None else torch.cat([self.reference[row] for row in pack.rows])
        content = vars(pack) | {"old_logprobs": old, "reference_logprobs": reference, "value_targets": None}
        if self.credit is not None:
            parts = [self.credit[row] for row in pack.rows]
            content["advantages"] = _joined([part.advantages for part in parts], pack)
            content["value_targets"] = _joined([part.targets for part in parts], pack)
        return TrainingPack(**content)


def _joined(parts: Sequence[Floats], pack: Pack) -> Tensor:
    """Return the parts as one tensor [P] float32 on the pack's device."""
    return torch.from_numpy(np.concatenate(parts)).float().to(pack.targets.device)


def compute_fixed_logprobs(
    policy: nn.Module,
    packs: Sequence[Pack],
    rollouts: Sequence[Rollout],
    objective: Objective,
    reference_view: ReferenceView | None = None,
    group: ProcessGroup = SINGLE,
) -> FixedLogprobs:
    """Compute log-probs before the first step: of the policy, and of the base policy where the objective needs it.

    `packs` are this rank's share of the batch `rollouts`; the result covers the whole batch (collective). Raises
    ValueError when the base policy is needed and `reference_view` is None.
    """
    old, entropies, values = _logprobs(policy, packs, rollouts, objective, group, of_old=True)
    reference = None
    if objective.reference:
        if reference_view is None:
            raise ValueError("kl_coefficient > 0 or preference.reference: base needs the base policy")
        with reference_view() as base:
            reference, _, _ = _logprobs(base, packs, rollouts, objective, group, of_old=False)
            del base
    critic = objective.critic
    credit = None if critic is None else critic.batch_credit(rollouts, values)
    return FixedLogprobs(old, reference, torch.cat(entropies).mean().item(), credit)


def read_logprobs(
    policy: nn.Module, packs: Sequence[Pack], rollouts: Sequence[Rollout], objective: Objective, group: ProcessGroup
) -> list[Tensor]:
    """Return log-probs [P] of each of `rollouts`, of which `packs` are this rank's share (collective)."""
    return _logprobs(policy, packs, rollouts, objective, group, of_old=False)[0]


def _logprobs(
    policy: nn.Module,
    packs: Sequence[Pack],
    rollouts: Sequence[Rollout],
    objective: Objective,
    group: ProcessGroup,
    *,
    of_old: bool,
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Return log-probs of every rollout, in the batch's order, without gradients.

    `of_old`: the policy is the one before the update, so return entropies too, and values where there is a critic.
    """
    critic = objective.critic if of_old else None

    @torch.no_grad()
    def run(pack: Pack) -> tuple[Tensor, ...]:
        token_stats = objective.logprobs(policy, pack, entropy=of_old)
        asked = (
            token_stats.logprobs,
            token_stats.entropies,
            critic and token_stats.states is not None and critic.values(token_stats.states),
        )
        return tuple(part for part in asked if isinstance(part, Tensor))

    results = map_packs(run, policy, packs, group)
    bar = tqdm(results, desc="log-probs", unit="pack", total=len(packs), leave=False, disable=not group.is_main)
    kinds: tuple[dict[int, Tensor], ...] = ({}, {}, {})
    for pack, pack_results in zip(packs, bar, strict=True):
        if pack.is_padding:
            continue
        for kind, part in zip(kinds, pack_results, strict=False):
            kind.update(zip(pack.rows, torch.split(part, pack.policy_tokens), strict=True))
    wanted = (True, of_old, critic is not None)
    logprobs, entropies, values = (
        _gathered(kind, rollouts, group) if asked else [] for kind, asked in zip(kinds, wanted, strict=True)
    )
    return logprobs, entropies, values


def _gathered(by_row: dict[int, Tensor], rollouts: Sequence[Rollout], group: ProcessGroup) -> list[Tensor]:
    """Return [P] of every rollout.

    Each rank fills in its own rollouts among zeros, so the sum over the ranks is exact.
    """
    if group.size == 1:
        return [by_row[row] for row in range(len(rollouts))]
    sizes = [len(rollout.policy_positions) for rollout in rollouts]
    flat = torch.zeros(sum(sizes), device=group.device)
    for row, part in enumerate(torch.split(flat, sizes)):
        if row in by_row:
            part.copy_(by_row[row])
    return list(torch.split(group.sum(flat), sizes))
