"""metrics.json: the record of one update."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tasks.core.config.update import LossConfig
from tasks.core.learner.learner import Learner, UpdateStats
from tasks.core.learner.losses import behaviour_weights, importance_units, k3, sum_by_rollout
from tasks.core.learner.packing import Rollout
from tasks.core.learner.proofs import engine_noise
from tasks.core.records.training import AdvantageSummary, EngineMismatch, Metrics, UpdateTimings


def trained_metrics(
    rollouts: Sequence[Rollout],
    stats: UpdateStats,
    learner: Learner,
    summary: AdvantageSummary,
    loss: LossConfig,
    staleness: int,
) -> Metrics:
    """Return the metrics of an update on `rollouts` of this staleness."""
    steps = stats.steps
    behaviour = behaviour_stats(rollouts, stats.old_logprobs, loss) if stats.corrects_behaviour else None
    return Metrics(
        **_of_the_batch(summary),
        prompt_information=stats.information,
        entropy=stats.entropy,
        kl=steps[-1].kl,
        grad_norm=float(np.mean([step.grad_norm for step in steps])),
        largest_grad_norm=max(step.grad_norm for step in steps),
        clip_fraction=sum(step.clipped for step in steps) / sum(step.units for step in steps),
        loss=float(np.mean([step.loss for step in steps])),
        value_loss=None if learner.critic is None else float(np.mean([step.value_loss for step in steps])),
        engine_mismatch=engine_mismatch(rollouts, stats.old_logprobs, engine_noise(learner.policy).token),
        staleness=staleness,
        behaviour_kl=behaviour and behaviour.kl,
        behaviour_weight=behaviour and behaviour.weight,
        capped_behaviour_weights=behaviour and behaviour.capped,
        optimizer_steps=stats.optimizer_steps,
        planned_optimizer_steps=stats.planned,
        total_optimizer_steps=learner.optimizer_steps,
        stopped_early=stats.stopped_early,
    )


def update_timings(stats: UpdateStats) -> UpdateTimings:
    """Return how fast an update was."""
    tokens = sum(step.tokens for step in stats.steps)
    return UpdateTimings(tokens_per_s=tokens / stats.seconds, update_s=stats.seconds)


def unchanged_metrics(summary: AdvantageSummary) -> Metrics:
    """Return the metrics of an iteration without a batch, in which nothing was measured."""
    return Metrics(
        **_of_the_batch(summary),
        entropy=None,
        kl=None,
        grad_norm=None,
        largest_grad_norm=None,
        clip_fraction=None,
        loss=None,
        engine_mismatch=None,
        optimizer_steps=0,
        planned_optimizer_steps=0,
        stopped_early=False,
        note="nothing to train on: the policy is that of the iteration before",
    )


def _of_the_batch(summary: AdvantageSummary) -> dict[str, Any]:
    names = ("mean_return", "group_return_std", "kept_rollouts", "lost_rollouts", "shrunk_groups", "responses")
    return {name: getattr(summary, name) for name in names}


class BehaviourStats(NamedTuple):
    """The distance between the policy before the update and the policy that sampled, over the whole batch."""

    kl: float
    """Estimate of KL(behaviour || policy before the update), averaged over the rollouts, in nats."""
    weight: float
    """Mean weight of an importance unit."""
    capped: float
    """Share of the units whose weight is at the cap."""


def behaviour_stats(rollouts: Sequence[Rollout], old_logprobs: Sequence[Tensor], loss: LossConfig) -> BehaviourStats:
    """Compare old_logprobs, [P] for each rollout, with the engine's."""
    engine = torch.from_numpy(np.concatenate([rollout.engine_logprobs for rollout in rollouts]))
    log_ratios = torch.cat(list(old_logprobs)).cpu() - engine
    turns = torch.from_numpy(np.concatenate([rollout.turns for rollout in rollouts]))
    sizes = torch.tensor([len(rollout.turns) for rollout in rollouts])
    rollout_ids = torch.repeat_interleave(torch.arange(len(rollouts)), sizes)
    weights = behaviour_weights(log_ratios, importance_units(loss.importance, rollout_ids, turns), loss)
    return BehaviourStats(
        kl=float(sum_by_rollout(k3(log_ratios), rollout_ids, len(rollouts)).mean()),
        weight=float(weights.mean()),
        capped=float((weights >= loss.max_behaviour_weight).float().mean()),
    )


def engine_mismatch(rollouts: Sequence[Rollout], old_logprobs: Sequence[Tensor], noise: float) -> EngineMismatch:
    """Return |engine - learner| over all policy tokens; `old_logprobs`: [P] per rollout, before the update.

    `noise` is the most that rounding changes a token's log-prob. A broken engine, chat format or adapter shows here
    first. For stale rollouts the difference includes the updates since they were sampled.
    """
    engine = np.concatenate([rollout.engine_logprobs for rollout in rollouts])
    learner = np.concatenate([logprobs.cpu().numpy() for logprobs in old_logprobs])
    gap = np.abs(engine.astype(np.float64) - learner)
    share = float((gap > noise).mean())
    return EngineMismatch(mean=float(gap.mean()), max=float(gap.max()), noise=noise, share_over_noise=share)
