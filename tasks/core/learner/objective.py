"""The objective of an update as one object: `loss, stats = objective(policy, pack)`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tasks.core.config.update import WEIGHTED, UpdateConfig
from tasks.core.learner.critic import Critic
from tasks.core.learner.distributed import ProcessGroup
from tasks.core.learner.logprobs import TokenLogprobs, token_logprobs
from tasks.core.learner.losses import KL_ESTIMATORS, k3, loss_divisor, sum_by_rollout
from tasks.core.learner.packing import Pack, TrainingPack
from tasks.core.learner.rollouts import Rollout
from tasks.core.learner.terms import OBJECTIVES, ObjectiveSettings, Terms, clipped_terms


class PackStats(NamedTuple):
    """Sums over the rollouts of a pack: [] tensors on the policy's device, and numbers that the host knows."""

    loss: Tensor
    kl: Tensor
    """k3 estimate of KL(policy before || policy now), summed over the rollouts."""
    kl_stop: Tensor
    """By the estimator that may end the update early, summed over the rollouts."""
    clipped: Tensor
    """Importance units without a gradient because their weight left the clip range."""
    value_loss: Tensor
    """The critic's loss; 0 without a critic."""
    units: int
    tokens: int
    """Positions of the forward and backward pass."""
    rollouts: int


@dataclass(frozen=True)
class StepStats:
    """Sums over one minibatch and all ranks, on the host."""

    loss: float
    kl: float
    """Mean over the rollouts of the k3 estimate of KL(policy before || policy now), in nats."""
    kl_stop: float
    """Absolute mean over the rollouts by the estimator that may end the update early (LOOP's code: |k1|), in nats."""
    clipped: int
    value_loss: float
    """Half the critic's mean squared error over the policy tokens; 0 without a critic."""
    units: int
    tokens: int
    rollouts: int
    grad_norm: float
    """The norm before clipping."""

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.grad_norm)

    def allows_step(self, kl_limit: float) -> bool:
        """Return whether the gradient is finite and the policy is within `kl_limit` of the policy before the update."""
        return self.is_finite and self.kl_stop <= kl_limit


def read_stats(packs: Sequence[PackStats], grad_norm: Tensor, group: ProcessGroup) -> StepStats:
    """Add the packs' sums in their order, then over the ranks (collective); `grad_norm` [] is that of all packs.

    In an optimizer step, only this function waits for the device.
    """
    sums = grad_norm.new_zeros(5, dtype=torch.float64)
    for pack in packs:
        parts = (pack.loss, pack.kl, pack.kl_stop, pack.clipped, pack.value_loss)
        sums = sums + torch.stack([part.double() for part in parts])
    counts = [
        sum(pack.units for pack in packs),
        sum(pack.tokens for pack in packs),
        sum(pack.rollouts for pack in packs),
    ]
    everything = group.sum(torch.cat([sums, sums.new_tensor(counts)]))
    read: list[float] = torch.cat([everything, grad_norm[None].double()]).tolist()
    loss, kl, stop, clipped, value_loss, units, tokens, rollouts, norm = read
    return StepStats(
        loss=loss,
        kl=kl / rollouts,
        kl_stop=abs(stop / rollouts),
        clipped=int(clipped),
        value_loss=value_loss,
        units=int(units),
        tokens=int(tokens),
        rollouts=int(rollouts),
        grad_norm=norm,
    )


@dataclass(frozen=True)
class Objective(ObjectiveSettings):
    """One pass over a pack, the terms of `update.objective`, and their sums."""

    kl_stop: str = "k1"
    """Estimator by which the update ends early."""
    terms: Terms = clipped_terms
    reference: bool = False
    """Whether the terms need the base policy's log-probs."""
    critic: Critic | None = None
    """Trained together with the policy, by its own loss."""
    policy_tokens: int = 1
    """Policy tokens of the minibatch: the divisor of the critic's loss."""

    @classmethod
    def of(
        cls,
        config: UpdateConfig,
        rollouts: int,
        temperature: float,
        *,
        stale: bool = False,
        critic: Critic | None = None,
    ) -> "Objective":
        """Return the objective of an update on a batch of `rollouts`; `stale`: an older policy sampled them."""
        return cls(
            loss=config.loss,
            temperature=temperature,
            loss_divisor=config.minibatch or rollouts,
            logprob_chunk=config.logprob_chunk,
            corrects_behaviour=config.objective in WEIGHTED and (stale or config.loss.correct_engine_mismatch),
            preference=config.preference,
            kl_stop=config.kl_stop.estimator,
            terms=OBJECTIVES[config.objective],
            reference=config.needs_reference,
            critic=critic,
        )

    def of_minibatch(self, rollouts: Sequence[Rollout]) -> "Objective":
        """Return the objective with this minibatch's divisor. A rank sees only a part of the minibatch."""
        tokens = sum(len(rollout.policy_positions) for rollout in rollouts)
        divisor = loss_divisor(self.loss, self.loss_divisor, tokens)
        return replace(self, loss_divisor=divisor, policy_tokens=tokens)

    def __call__(self, policy: nn.Module, pack: TrainingPack) -> tuple[Tensor, PackStats]:
        """Return the loss [] of the pack, to be differentiated, and its sums.

        The gradient of a padding pack is zero.
        """
        new = self.logprobs(policy, pack, entropy=self.loss.entropy_coefficient > 0)
        terms = self.terms(self, new, pack)
        loss = -terms.values.sum() / self.loss_divisor
        value_loss = self._value_loss(new, pack)
        if self.critic is not None:
            loss = loss + self.critic.loss_coefficient * value_loss
        log_ratios = (new.logprobs - pack.old_logprobs).detach()
        stats = PackStats(
            loss=loss.detach(),
            kl=sum_by_rollout(k3(log_ratios), pack.rollout_ids, len(pack.rows)).sum(),
            kl_stop=KL_ESTIMATORS[self.kl_stop](log_ratios).sum(),
            clipped=loss.new_zeros(()) if terms.clipped is None else terms.clipped,
            value_loss=value_loss.detach(),
            units=terms.units,
            tokens=sum(pack.lengths),
            rollouts=len(pack.rows),
        )
        return loss * 0 if pack.is_padding else loss, stats

    def _value_loss(self, new: TokenLogprobs, pack: TrainingPack) -> Tensor:
        """Return the pack's part [] of the critic's mean squared error, halved; 0 without a critic."""
        if self.critic is None or new.states is None or pack.value_targets is None:
            return new.logprobs.new_zeros(())
        return self.critic.loss(new.states, pack.value_targets) / self.policy_tokens

    def logprobs(self, policy: nn.Module, pack: Pack, *, entropy: bool) -> TokenLogprobs:
        """Return log-probs (and entropies) of the policy tokens at the sampling temperature."""
        return token_logprobs(policy, pack, self.temperature, self.logprob_chunk, entropy=entropy)
