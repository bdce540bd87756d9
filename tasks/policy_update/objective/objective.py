"""The objective of an update as one object: `loss, stats = objective(policy, pack)`."""

from dataclasses import dataclass

from torch import Tensor, nn

from tasks.core.config.update import LossConfig, UpdateConfig
from tasks.policy_update.objective.logprobs import TokenLogprobs, token_logprobs
from tasks.policy_update.objective.losses import (
    KL_ESTIMATORS,
    ImportanceUnits,
    clipped_objective,
    importance_units,
    k3,
    mean_by_rollout,
    sum_by_rollout,
)
from tasks.policy_update.objective.stats import PackStats
from tasks.policy_update.packing import Pack, TrainingPack


@dataclass(frozen=True)
class Objective:
    """The clipped objective of the rollouts, minus a KL term, plus an entropy bonus: fixed for one update."""

    loss: LossConfig
    temperature: float
    """The one that the rollouts were sampled at."""
    loss_denominator: int
    """Constant divisor of the loss of a minibatch, also of a short one."""
    logprob_chunk: int
    """Policy tokens whose logits exist at one time."""
    corrects_behaviour: bool = False
    """Whether units are weighted by pi_old / pi_behaviour, truncated."""
    kl_stop: str = "k1"
    """The estimator by which the update ends early."""

    @classmethod
    def of(cls, config: UpdateConfig, rollouts: int, temperature: float, *, stale: bool = False) -> "Objective":
        """The objective of an update on a batch of `rollouts`; `stale`: an older policy sampled them."""
        corrects = stale or config.loss.correct_engine_mismatch
        denominator = config.minibatch or rollouts
        return cls(config.loss, temperature, denominator, config.logprob_chunk, corrects, config.kl_stop.estimator)

    def __call__(self, policy: nn.Module, pack: TrainingPack) -> tuple[Tensor, PackStats]:
        """[] the loss of the pack, to be differentiated, and its sums. The gradient of a padding pack is zero."""
        terms, count = self.loss, len(pack.rows)
        new = self.logprobs(policy, pack, entropy=terms.entropy_coefficient > 0)
        log_ratios, units = new.logprobs - pack.old_logprobs, self._units(pack)
        clipped = clipped_objective(log_ratios, units, pack.advantages, terms, self._behaviour_log_ratios(pack))
        values = clipped.values
        if pack.reference_logprobs is not None:
            kl = mean_by_rollout(k3(pack.reference_logprobs - new.logprobs), pack.rollout_ids, count)
            values = values - terms.kl_coefficient * kl
        if new.entropies is not None:
            values = values + terms.entropy_coefficient * mean_by_rollout(new.entropies, pack.rollout_ids, count)
        loss = -values.sum() / self.loss_denominator
        stats = PackStats(
            loss=loss.detach(),
            kl=sum_by_rollout(k3(log_ratios.detach()), pack.rollout_ids, count).sum(),
            kl_stop=KL_ESTIMATORS[self.kl_stop](log_ratios.detach()).sum(),
            clipped=clipped.clipped,
            units=len(units.rollout_ids),
            tokens=sum(pack.lengths),
            rollouts=count,
        )
        return loss * 0 if pack.is_padding else loss, stats

    def logprobs(self, policy: nn.Module, pack: Pack, *, entropy: bool) -> TokenLogprobs:
        """Log-probs (and entropies) of the policy tokens at the sampling temperature."""
        return token_logprobs(policy, pack, self.temperature, self.logprob_chunk, entropy=entropy)

    def _units(self, pack: Pack) -> ImportanceUnits:
        counts = {"token": len(pack.targets), "turn": pack.turn_count, "trajectory": len(pack.rows)}
        importance = self.loss.importance
        return importance_units(importance, pack.rollout_ids, pack.turns, counts[importance])

    def _behaviour_log_ratios(self, pack: TrainingPack) -> Tensor | None:
        return pack.old_logprobs - pack.behaviour_logprobs if self.corrects_behaviour else None
