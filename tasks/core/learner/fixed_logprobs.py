"""Values fixed during an update: log-probs of the policy before it and of the base policy, a critic's credit."""

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
"""Opens a view of the policy as its base model is (LoRA: the adapter switched off), to be closed without a reference
to it."""


@dataclass(frozen=True)
class FixedLogprobs:
    """Log-probs that do not change during an update, per rollout of the batch."""

    old: list[Tensor]
    """[P] each, of the policy before the update, computed by the learner."""
    reference: list[Tensor] | None
    """[P] each, of the base policy; None where the objective has no use for it."""
    entropy: float
    """Mean over all policy tokens, in nats, of the policy before the update."""
    credit: list[Credit] | None = None
    """Each rollout's, by a critic as it was before the update; its advantages take the place of the batch's."""

    def attach(self, packs: Iterable[Pack]) -> list[TrainingPack]:
        """The packs with what belongs to their rollouts."""
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
    """[P] float32 on the pack's device."""
    return torch.from_numpy(np.concatenate(parts)).float().to(pack.targets.device)


def compute_fixed_logprobs(
    policy: nn.Module,
    packs: Sequence[Pack],
    rollouts: Sequence[Rollout],
    objective: Objective,
    reference_view: ReferenceView | None = None,
    group: ProcessGroup = SINGLE,
) -> FixedLogprobs:
    """Log-probs before the first step: of the policy, and of the base policy where the objective needs it.

    `packs` are this rank's share of the batch `rollouts`; the result is of all of it (collective). Raises ValueError
    when it is needed and not there.
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
    """[P] log-probs of each of `rollouts`, of which `packs` are this rank's share (collective)."""
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
    """Log-probs of every rollout, in the order of the batch, without gradients.

    `of_old`: of the policy before the update, and so with entropies, and values where there is a critic.
    """
    critic = objective.critic if of_old else None

    @torch.no_grad()
    def run(pack: Pack) -> tuple[Tensor, ...]:
        found = objective.logprobs(policy, pack, entropy=of_old)
        asked = (found.logprobs, found.entropies, critic and found.states is not None and critic.values(found.states))
        return tuple(part for part in asked if isinstance(part, Tensor))

    results = map_packs(run, policy, packs, group)
    bar = tqdm(results, desc="log-probs", unit="pack", total=len(packs), leave=False, disable=not group.is_main)
    kinds: tuple[dict[int, Tensor], ...] = ({}, {}, {})
    for pack, found in zip(packs, bar, strict=True):
        if pack.is_padding:
            continue
        for kind, part in zip(kinds, found, strict=False):
            kind.update(zip(pack.rows, torch.split(part, pack.policy_tokens), strict=True))
    wanted = (True, of_old, critic is not None)
    logprobs, entropies, values = (
        _gathered(kind, rollouts, group) if asked else [] for kind, asked in zip(kinds, wanted, strict=True)
    )
    return logprobs, entropies, values


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
