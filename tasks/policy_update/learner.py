"""One LOOP policy update: old log-probs, then epochs of minibatches with one optimizer step each (LOOP, algorithm 1).

The learner sees token ids, masks, turns and advantages, and a frozen config; nothing of worlds, engines or files.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import AdamW
from tqdm import tqdm

from tasks.core.config.update import UpdateConfig
from tasks.core.seeding import derive_seed
from tasks.policy_update.distributed.process_group import SINGLE, ProcessGroup
from tasks.policy_update.distributed.sharding import full_tensor, is_sharded, shard
from tasks.policy_update.model.activation_checkpointing import checkpoint_activations
from tasks.policy_update.model.attention import use_packed_attention
from tasks.policy_update.model.lora_forward import fold_adapter
from tasks.policy_update.objective.fixed_logprobs import (
    BehaviourView,
    FixedLogprobs,
    ReferenceView,
    compute_fixed_logprobs,
)
from tasks.policy_update.objective.gradients import StepStats, accumulate_gradients, without_finite_gradient
from tasks.policy_update.objective.logprobs import SHARDED_FORWARD, forward_pass
from tasks.policy_update.packing import pack_rollouts
from tasks.policy_update.rollouts import Rollout


class UpdateDiverged(ValueError):  # noqa: N818 - says what happened to the update
    """Loss or gradient is no longer a finite number."""


@dataclass
class Learner:
    """A policy with its optimizer, and how many optimizer steps it has made since the base policy."""

    policy: nn.Module
    optimizer: AdamW
    optimizer_steps: int = 0
    group: ProcessGroup = SINGLE


@dataclass(frozen=True)
class UpdateStats:
    """What one update did."""

    entropy: float
    old_logprobs: list[Tensor]
    behaviour_logprobs: list[Tensor] | None = None
    """[P] each, of an older policy that sampled the rollouts; None when the policy before the update did."""
    steps: list[StepStats] = field(default_factory=list)
    planned: int = 0
    stopped_early: bool = False
    seconds: float = 0.0


def make_learner(policy: nn.Module, config: UpdateConfig, group: ProcessGroup = SINGLE) -> Learner:
    """A learner with a new optimizer over what of `policy` requires gradients."""
    prepare_forward(policy, config, group)
    trained = [weight for weight in policy.parameters() if weight.requires_grad]
    optimizer = AdamW(
        trained, lr=config.learning_rate, betas=config.betas, weight_decay=config.weight_decay, fused=True
    )
    return Learner(policy, optimizer, group=group)


def prepare_forward(policy: nn.Module, config: UpdateConfig, group: ProcessGroup) -> None:
    """Make `policy` compute as `config` says: packed attention, folded adapter, checkpointing, shards. Idempotent."""
    use_packed_attention(policy)
    if config.fold_adapter:
        fold_adapter(policy)
    if config.activation_checkpointing:
        checkpoint_activations(policy)
    if uses_fsdp(config, group) and not is_sharded(policy):
        shard(policy, group.size, group.device, forward_pass, SHARDED_FORWARD)


def uses_fsdp(config: UpdateConfig, group: ProcessGroup) -> bool:
    """Whether each rank holds a part of every weight."""
    return group.size > 1 and config.distributed.sharding == "fsdp"


def update(
    learner: Learner,
    rollouts: Sequence[Rollout],
    config: UpdateConfig,
    *,
    temperature: float,
    seed: int,
    reference_view: ReferenceView | None = None,
    behaviour_view: BehaviourView | None = None,
    name: str = "update",
) -> UpdateStats:
    """Train `learner` on `rollouts` in place.

    `temperature` is the one that the rollouts were sampled at; `seed` decides the order of the minibatches;
    `reference_view` is needed when config.loss.kl_coefficient > 0, `behaviour_view` when another policy sampled the
    rollouts. Raises UpdateDiverged, having changed nothing on disk, when loss or gradient stops being finite.
    """
    started, group = time.perf_counter(), learner.group
    packs = pack_rollouts(rollouts, range(len(rollouts)), config.tokens_per_pack, _device(learner.policy), group)
    fixed = compute_fixed_logprobs(
        learner.policy, packs, rollouts, config, temperature, reference_view, group, behaviour_view
    )
    minibatches = list(_minibatches(len(rollouts), config, seed))
    loss_denominator = config.minibatch or len(rollouts)
    steps: list[StepStats] = []
    with tqdm(
        total=sum(map(len, minibatches)), desc=name, unit="rollout", leave=False, disable=not group.is_main
    ) as bar:
        for minibatch in minibatches:
            step = _step(learner, rollouts, minibatch, fixed, config, loss_denominator, temperature)
            steps.append(step)
            if not _is_finite(step):
                rows = step.not_finite or without_finite_gradient(
                    learner.policy, minibatch, rollouts, fixed, config, loss_denominator, temperature, group
                )
                place = f"minibatch {len(steps)} of {len(minibatches)}"
                raise UpdateDiverged(_explained(step, place, rows or minibatch, rollouts))
            if step.kl > config.max_kl:
                break
            bar.update(len(minibatch))
    return UpdateStats(
        entropy=fixed.entropy,
        old_logprobs=fixed.old,
        behaviour_logprobs=fixed.behaviour,
        steps=steps,
        planned=len(minibatches),
        stopped_early=steps[-1].kl > config.max_kl,
        seconds=time.perf_counter() - started,
    )


def learning_rate(config: UpdateConfig, optimizer_steps: int) -> float:
    """Of the step that follows `optimizer_steps` earlier ones: rising over the warm-up, then constant."""
    return config.learning_rate * min(1.0, (optimizer_steps + 1) / max(1, config.warmup_steps))


def _minibatches(count: int, config: UpdateConfig, seed: int) -> Iterator[list[int]]:
    """Rollout indices per optimizer step, shuffled irrespective of their task, anew in every epoch."""
    size = config.minibatch or count
    for epoch in range(config.epochs):
        order = np.arange(count)
        if config.shuffle:
            np.random.Generator(np.random.PCG64(derive_seed(seed, "epoch", epoch))).shuffle(order)
        yield from (order[start : start + size].tolist() for start in range(0, count, size))


def _step(
    learner: Learner,
    rollouts: Sequence[Rollout],
    minibatch: list[int],
    fixed: FixedLogprobs,
    config: UpdateConfig,
    loss_denominator: int,
    temperature: float,
) -> StepStats:
    """Gradient of one minibatch and, unless its KL is over the limit, one optimizer step."""
    group = learner.group
    packs = pack_rollouts(rollouts, minibatch, config.tokens_per_pack, _device(learner.policy), group)
    learner.optimizer.zero_grad(set_to_none=True)
    stats = accumulate_gradients(learner.policy, packs, rollouts, fixed, config, loss_denominator, temperature, group)
    trained = [weight for group in learner.optimizer.param_groups for weight in group["params"]]
    stats.grad_norm = full_tensor(nn.utils.clip_grad_norm_(trained, config.max_grad_norm)).item()
    if stats.kl <= config.max_kl and _is_finite(stats):
        for settings in learner.optimizer.param_groups:
            settings["lr"] = learning_rate(config, learner.optimizer_steps)
        learner.optimizer.step()
        learner.optimizer_steps += 1
    return stats


def _is_finite(stats: StepStats) -> bool:
    return math.isfinite(stats.loss) and math.isfinite(stats.grad_norm)


def _explained(stats: StepStats, place: str, rows: Sequence[int], rollouts: Sequence[Rollout]) -> str:
    """With the rollouts that broke it: by their own objective, else by their own gradient, else the whole minibatch."""
    names = [rollouts[row].name or f"row {row}" for row in sorted(rows)]
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return (
        f"{place}: loss {stats.loss}, gradient norm {stats.grad_norm}, from {shown}; nothing was saved. "
        "Lower update.learning_rate or update.max_grad_norm, or look for a damaged checkpoint"
    )


def _device(policy: nn.Module) -> torch.device:
    return next(policy.parameters()).device
