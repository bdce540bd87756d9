"""The objective of an update: the terms that `update.objective` names, and their sums as one object.

Terms are pure functions on a pack: each returns every rollout's part of the sum to maximise. An `Objective` does the
pass before them and the sum after them: `loss, stats = objective(policy, pack)`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from tasks.core.config.update import WEIGHTED, LossConfig, PreferenceConfig, UpdateConfig
from tasks.core.learner.critic import Critic
from tasks.core.learner.distributed import ProcessGroup
from tasks.core.learner.logprobs import TokenLogprobs, joined, token_logprobs
from tasks.core.learner.losses import (
    KL_ESTIMATORS,
    ImportanceUnits,
    averaged,
    clipped_objective,
    importance_units,
    k3,
    loss_divisor,
    sum_by_rollout,
    sum_from_here,
    turn_discounts,
    weighted_by_ratio,
)
from tasks.core.learner.packing import Pack, Pass, Rollout, TrainingPack


@dataclass(frozen=True)
class ObjectiveSettings:
    """Settings that are fixed for one update, except the divisor, which is fixed for a minibatch."""

    loss: LossConfig
    temperature: float
    """The sampling temperature of the rollouts."""
    loss_divisor: int
    """Divisor of the loss of a minibatch."""
    logprob_chunk: int
    """Policy tokens whose logits are in memory at one time."""
    corrects_behaviour: bool = False
    """Whether units are weighted by pi_old / pi_behaviour, truncated."""
    preference: PreferenceConfig = field(default_factory=PreferenceConfig)


class PackTerms(NamedTuple):
    """An objective's terms for a pack."""

    values: Tensor
    """[R] each rollout's part of the sum to maximise: the loss is minus their sum over the divisor."""
    clipped: Tensor | None
    """[] importance units without a gradient; None where nothing is clipped."""
    units: int
    """The things that the objective counts: importance units, tokens or pairs."""


Terms = Callable[[ObjectiveSettings, TokenLogprobs, TrainingPack], PackTerms]


def clipped_terms(settings: ObjectiveSettings, new: TokenLogprobs, pack: TrainingPack) -> PackTerms:
    """Compute the clipped policy gradient (LOOP, eq. 6 to 8), minus a KL term, plus an entropy bonus."""
    units = _units(settings.loss.importance, pack)
    behaviour = pack.old_logprobs - pack.behaviour_logprobs if settings.corrects_behaviour else None
    log_ratios = new.logprobs - pack.old_logprobs
    clipped = clipped_objective(log_ratios, units, _advantages(settings.loss, units, pack), settings.loss, behaviour)
    values = averaged(clipped.values, units, len(pack.rows), settings.loss)
    return PackTerms(_regularised(values, settings, new, pack), clipped.clipped, len(units.rollout_ids))


def supervised_terms(settings: ObjectiveSettings, new: TokenLogprobs, pack: TrainingPack) -> PackTerms:
    """Compute A log pi without importance weights: minus the cross-entropy where each kept rollout's advantage is 1.

    The estimator `success` gives such advantages: supervised training on rollouts that succeeded.
    """
    units = _units("token", pack)
    values = averaged(new.logprobs * _advantages(settings.loss, units, pack), units, len(pack.rows), settings.loss)
    return PackTerms(_regularised(values, settings, new, pack), None, len(pack.targets))


def preference_terms(settings: ObjectiveSettings, new: TokenLogprobs, pack: TrainingPack) -> PackTerms:
    """Compute direct preference optimisation over whole rollouts: for each pair

        log sigmoid(beta (log pi(better) / ref(better) - log pi(worse) / ref(worse)))

    with sums over policy tokens, each times the weight of its turn (DMPO, see `turn_discounts`), or 1 (DPO, arXiv
    2305.18290, eq. 7). A pair's term counts twice, because the divisor counts rollouts: `update.minibatch` rollouts are
    half as many pairs.
    """
    reference = pack.old_logprobs if pack.reference_logprobs is None else pack.reference_logprobs
    log_ratios, gamma = new.logprobs - reference, settings.preference.gamma
    if gamma is not None:
        log_ratios = log_ratios * turn_discounts(_units("turn", pack), len(pack.rows), gamma)
    gains = sum_by_rollout(log_ratios, pack.rollout_ids, len(pack.rows))
    better, worse = (torch.tensor(side, device=gains.device) for side in zip(*pack.pairs, strict=True))
    margins = settings.preference.beta * (gains[better] - gains[worse])
    values = gains.new_zeros(len(pack.rows)).index_add(0, better, 2 * logsigmoid(margins))
    return PackTerms(values, None, len(pack.pairs))


OBJECTIVES: dict[str, Terms] = {
    "clipped": clipped_terms,
    "supervised": supervised_terms,
    "preference": preference_terms,
}


def _advantages(loss: LossConfig, units: ImportanceUnits, pack: TrainingPack) -> Tensor:
    """Return the advantages [P]: with the KL penalty in the returns, minus that of the unit's tokens and all later."""
    if pack.reference_logprobs is None or loss.kl_gradient != "returns":
        return pack.advantages
    log_ratios = pack.old_logprobs - pack.reference_logprobs
    return pack.advantages - loss.kl_coefficient * sum_from_here(log_ratios, units, len(pack.rows))


def _regularised(values: Tensor, settings: ObjectiveSettings, new: TokenLogprobs, pack: TrainingPack) -> Tensor:
    """Return values [R] minus the KL term, plus the entropy bonus, averaged as `update.loss.average` says.

    No term for a KL penalty that is in the returns already (`_advantages`).
    """
    loss, count = settings.loss, len(pack.rows)
    if pack.reference_logprobs is not None and loss.kl_gradient != "returns":
        kl = k3(pack.reference_logprobs - new.logprobs)
        if loss.kl_gradient == "unbiased":
            kl = weighted_by_ratio(kl, new.logprobs - pack.old_logprobs)
        values = values - loss.kl_coefficient * averaged(kl, _units("token", pack), count, loss)
    if new.entropies is not None:
        values = values + loss.entropy_coefficient * averaged(new.entropies, _units("token", pack), count, loss)
    return values


def _units(importance: str, pack: Pack) -> ImportanceUnits:
    counts = {"token": len(pack.targets), "turn": pack.turn_count, "trajectory": len(pack.rows)}
    return importance_units(importance, pack.rollout_ids, pack.turns, counts[importance])


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
        return self.of_logprobs(self.logprobs(policy, pack), pack)

    def of_logprobs(self, new: TokenLogprobs, pack: TrainingPack) -> tuple[Tensor, PackStats]:
        """Return what a call returns, from the values of the pack's policy tokens."""
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

    def logprobs(self, policy: nn.Module, pack: Pack, *, entropy: bool | None = None) -> TokenLogprobs:
        """Return log-probs of the policy tokens at the sampling temperature, from every pass of the pack.

        `entropy`: entropies too; None: if the loss has them.
        """
        parts = [self.of_pass(policy, pass_, entropy=entropy) for pass_ in pack.passes()]
        return joined([part for part, count in zip(parts, pack.pieces_by_pass, strict=True) if count])

    def of_pass(self, policy: nn.Module, pass_: Pass, *, entropy: bool | None = None) -> TokenLogprobs:
        """Return what `logprobs` returns, of one pass."""
        asked = self.loss.entropy_coefficient > 0 if entropy is None else entropy
        return token_logprobs(policy, pass_, self.temperature, self.logprob_chunk, entropy=asked)
