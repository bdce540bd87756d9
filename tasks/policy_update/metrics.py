"""The figures of one update, as metrics.json holds them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasks.core.config.update import LossConfig
from tasks.core.records.documents import AdvantageSummary, EngineMismatch, Metrics
from tasks.policy_update.learner import Learner, UpdateStats
from tasks.policy_update.objective.losses import behaviour_weights, k3
from tasks.policy_update.rollouts import Rollout


def trained_metrics(
    rollouts: Sequence[Rollout],
    stats: UpdateStats,
    learner: Learner,
    summary: AdvantageSummary,
    loss: LossConfig,
    staleness: int,
) -> Metrics:
    """What an update did; `staleness` is that of its rollouts.

    Means over its optimizer steps unless a field of `Metrics` says otherwise.
    """
    steps, sampler = stats.steps, stats.behaviour_logprobs or stats.old_logprobs
    return Metrics(
        mean_return=summary.mean_return,
        group_return_std=summary.group_return_std,
        kept_rollouts=summary.kept_rollouts,
        entropy=stats.entropy,
        kl=steps[-1].kl,
        grad_norm=float(np.mean([step.grad_norm for step in steps])),
        clip_fraction=sum(step.clipped for step in steps) / sum(step.units for step in steps),
        engine_mismatch=engine_mismatch(rollouts, sampler),
        tokens_per_s=sum(step.tokens for step in steps) / stats.seconds,
        loss=float(np.mean([step.loss for step in steps])),
        largest_grad_norm=max(step.grad_norm for step in steps),
        optimizer_steps=len(steps) - stats.stopped_early,
        planned_optimizer_steps=stats.planned,
        total_optimizer_steps=learner.optimizer_steps,
        stopped_early=stats.stopped_early,
        update_s=stats.seconds,
        staleness=staleness,
        **({} if stats.behaviour_logprobs is None else staleness_stats(rollouts, stats, loss)),
    )


def unchanged_metrics(summary: AdvantageSummary) -> Metrics:
    """An iteration without a batch: there are no figures of an update."""
    return Metrics(
        mean_return=summary.mean_return,
        group_return_std=summary.group_return_std,
        kept_rollouts=summary.kept_rollouts,
        entropy=None,
        kl=None,
        grad_norm=None,
        clip_fraction=None,
        engine_mismatch=None,
        tokens_per_s=None,
        note="nothing to train on: the policy is that of the iteration before",
        loss=None,
        optimizer_steps=0,
        planned_optimizer_steps=0,
        stopped_early=False,
    )


def staleness_stats(rollouts: Sequence[Rollout], stats: UpdateStats, loss: LossConfig) -> dict[str, Any]:
    """How far the policy before the update had moved from the one that sampled, over the whole batch.

    `behaviour_kl`: estimate of KL(behaviour || policy before the update), mean over the rollouts, in nats;
    `behaviour_weight`: mean weight of an importance unit; `capped_behaviour_weights`: share of those at the cap.
    """
    sampler = stats.behaviour_logprobs or stats.old_logprobs
    drift = [old - behaviour for old, behaviour in zip(stats.old_logprobs, sampler, strict=True)]
    turns = [torch.from_numpy(rollout.turns).to(ratios.device) for rollout, ratios in zip(rollouts, drift, strict=True)]
    weights = [
        behaviour_weights(ratios, torch.zeros_like(turn), turn, loss) for ratios, turn in zip(drift, turns, strict=True)
    ]
    every = torch.cat(weights)
    return {
        "behaviour_kl": float(torch.stack([k3(ratios).sum() for ratios in drift]).mean()),
        "behaviour_weight": float(every.mean()),
        "capped_behaviour_weights": float((every >= loss.max_behaviour_weight).float().mean()),
    }


def engine_mismatch(rollouts: Sequence[Rollout], learner_logprobs: Sequence[Tensor]) -> EngineMismatch:
    """|engine - learner| over all policy tokens; `learner_logprobs` [P] per rollout, of the policy that sampled them.

    A broken engine, chat format or adapter shows here first.
    """
    engine = np.concatenate([rollout.engine_logprobs for rollout in rollouts])
    learner = np.concatenate([logprobs.cpu().numpy() for logprobs in learner_logprobs])
    gap = np.abs(engine.astype(np.float64) - learner)
    return EngineMismatch(mean=float(gap.mean()), max=float(gap.max()), share_over_1e2=float((gap > 1e-2).mean()))
