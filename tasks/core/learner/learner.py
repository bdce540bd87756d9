"""One LOOP policy update: old log-probs, then epochs of minibatches with one optimizer step each (LOOP, algorithm 1).

The learner sees token ids, masks, turns, advantages and a frozen config. It knows no worlds, engines or files.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import AdamW
from tqdm import tqdm

from tasks.core.config.monitor import InformationConfig
from tasks.core.config.update import PAIRED, UpdateConfig
from tasks.core.learner.backward import backward, rollouts_not_finite
from tasks.core.learner.critic import Critic
from tasks.core.learner.distributed import SINGLE, ProcessGroup, full_tensor, is_sharded, shard
from tasks.core.learner.fixed_logprobs import ReferenceView, compute_fixed_logprobs
from tasks.core.learner.logprobs import SHARDED_FORWARD, forward_pass
from tasks.core.learner.model import checkpoint_activations, fold_adapter, narrow_adapter
from tasks.core.learner.objective import Objective, StepStats, read_stats
from tasks.core.learner.packing import TrainingPack, pack_rollouts
from tasks.core.learner.passes import pack_capacity, use_passes
from tasks.core.learner.prompt_information import UNMEASURED, measure_information, sample_pairs
from tasks.core.learner.rollouts import Rollout, bundles
from tasks.core.policies.float32_logits import use_float32_logits
from tasks.core.records.training import Passes, PromptInformation
from tasks.core.seeding import derive_seed

Masters = dict[nn.Parameter, nn.Parameter]
"""Master weights by the policy's weight. A sharded weight's master is this rank's part of it."""


def make_masters(trained: Iterable[nn.Parameter]) -> Masters:
    """Make a float32 master for each weight of a lower dtype. An adapter's weights are float32 and get none."""
    return {weight: nn.Parameter(weight.detach().float()) for weight in trained if weight.dtype != torch.float32}


def move_gradients(masters: Masters) -> None:
    """Move gradients from the weights to their masters, in float32."""
    for weight, master in masters.items():
        master.grad = None if weight.grad is None else weight.grad.float()
        weight.grad = None


@torch.no_grad()
def round_masters(masters: Masters) -> None:
    """Set the policy's weights to their masters' values, rounded."""
    for weight, master in masters.items():
        weight.copy_(master)
        master.grad = None


class UpdateDiverged(ValueError):  # noqa: N818 - named after the update's fate
    """A loss or gradient that is no longer a finite number."""


@dataclass
class Learner:
    """A policy with its optimizer, and the number of optimizer steps since the base policy."""

    policy: nn.Module
    optimizer: AdamW
    optimizer_steps: int = 0
    group: ProcessGroup = SINGLE
    critic: Critic | None = None
    masters: Masters = field(default_factory=dict)

    @property
    def stepped(self) -> list[nn.Parameter]:
        """Return the weights that the optimizer steps: the policy's trained weights, or their masters."""
        return [weight for settings in self.optimizer.param_groups for weight in settings["params"]]


@dataclass(frozen=True)
class UpdateStats:
    """Record of one update."""

    entropy: float
    """Mean over all policy tokens, in nats, before the update."""
    old_logprobs: list[Tensor]
    """[P] each, of the policy before the update."""
    steps: list[StepStats]
    """One for each minibatch that was begun; only the last can have exceeded the KL limit."""
    optimizer_steps: int
    """Steps that the policy made: none while a critic warms up."""
    planned: int
    """Number of minibatches planned."""
    stopped_early: bool
    """Whether the last minibatch exceeded the KL limit and therefore made no optimizer step."""
    corrects_behaviour: bool
    """Whether the loss was weighted by pi_old / pi_behaviour."""
    information: PromptInformation | None
    """Estimate for the policy before the update; None where it is switched off, or the batch has one prompt."""
    seconds: float


def make_learner(
    policy: nn.Module, config: UpdateConfig, group: ProcessGroup = SINGLE, passes: Passes | None = None
) -> Learner:
    """Return a learner with a new optimizer over those weights of `policy` that require gradients."""
    prepare_forward(policy, config, group, passes)
    trained = [weight for weight in policy.parameters() if weight.requires_grad]
    masters = make_masters(trained)
    stepped = [masters.get(weight, weight) for weight in trained]
    optimizer = AdamW(
        stepped, lr=config.learning_rate, betas=config.betas, weight_decay=config.weight_decay, fused=True
    )
    return Learner(policy, optimizer, group=group, masters=masters)


def prepare_forward(policy: nn.Module, config: UpdateConfig, group: ProcessGroup, passes: Passes | None = None) -> None:
    """Make `policy` compute as `config` says: folded adapter, checkpointing, shards, and `passes`. Idempotent.

    `passes`: the way that preflight has proven; None: the way that the model's layers suggest.
    """
    use_passes(policy, passes)
    use_float32_logits(policy)
    narrow_adapter(policy)
    if config.fold_adapter:
        fold_adapter(policy)
    if config.activation_checkpointing:
        checkpoint_activations(policy)
    if uses_fsdp(config, group) and not is_sharded(policy):
        shard(policy, group.size, group.device, forward_pass, SHARDED_FORWARD)


def uses_fsdp(config: UpdateConfig, group: ProcessGroup) -> bool:
    """Return whether each rank holds only a part of every weight."""
    return group.size > 1 and config.distributed.sharding == "fsdp"


def update(
    learner: Learner,
    rollouts: Sequence[Rollout],
    config: UpdateConfig,
    *,
    temperature: float,
    seed: int,
    reference_view: ReferenceView | None = None,
    stale: bool = False,
    information: InformationConfig = UNMEASURED,
    name: str = "update",
) -> UpdateStats:
    """Train `learner` on `rollouts` in place.

    `temperature` is the sampling temperature of the rollouts; `seed` decides the order of the minibatches;
    `reference_view` is needed when config.needs_reference; `stale`: an older policy sampled the rollouts;
    `information`: the sample on which to measure the mutual information of prompts and responses. Raises
    UpdateDiverged, having changed nothing on disk, when loss or gradient stops being finite.
    """
    started, policy, group = time.perf_counter(), learner.policy, learner.group
    first_step = learner.optimizer_steps
    _require_pairs(rollouts, config)
    objective = Objective.of(config, len(rollouts), temperature, stale=stale, critic=learner.critic)
    capacity = pack_capacity(policy, config.tokens_per_pack)
    pack = partial(pack_rollouts, rollouts, capacity=capacity, device=_device(policy), group=group)
    minibatches = list(_minibatches(rollouts, config, seed))
    rows = [range(len(rollouts))] if _computes_in_float32(policy) else _first_epoch(minibatches, len(rollouts))
    first = [packed for chosen in rows for packed in pack(chosen)]
    fixed = compute_fixed_logprobs(policy, first, rollouts, objective, reference_view, group)
    prompts, pairs = sample_pairs(rollouts, information, derive_seed(seed, "information"))
    measured = measure_information(policy, prompts, pairs, objective, capacity, group)
    steps: list[StepStats] = []
    total = sum(map(len, minibatches))
    with tqdm(total=total, desc=name, unit="rollout", leave=False, disable=not group.is_main) as bar:
        for minibatch in minibatches:
            part = objective.of_minibatch([rollouts[row] for row in minibatch])
            steps.append(optimizer_step(learner, fixed.attach(pack(minibatch)), part, config))
            if not steps[-1].is_finite:
                alone = fixed.attach(pack(minibatch, capacity=1))
                broken = rollouts_not_finite(policy, alone, part, len(rollouts), group) or minibatch
                minibatch_label = f"minibatch {len(steps)} of {len(minibatches)}"
                names = [rollouts[row].name or f"row {row}" for row in sorted(broken)]
                raise UpdateDiverged(_explained(steps[-1], minibatch_label, names))
            if not steps[-1].allows_step(config.kl_stop.limit):
                break
            bar.update(len(minibatch))
    if learner.critic is not None:
        learner.critic.updates += 1
    return UpdateStats(
        entropy=fixed.entropy,
        old_logprobs=fixed.old,
        steps=steps,
        optimizer_steps=learner.optimizer_steps - first_step,
        planned=len(minibatches),
        stopped_early=not steps[-1].allows_step(config.kl_stop.limit),
        corrects_behaviour=objective.corrects_behaviour,
        information=measured,
        seconds=time.perf_counter() - started,
    )


def optimizer_step(
    learner: Learner, packs: Sequence[TrainingPack], objective: Objective, config: UpdateConfig
) -> StepStats:
    """Compute the gradient of one minibatch and, if its stats allow it, make one optimizer step.

    `packs` are this rank's share of the minibatch. A critic steps with the policy, or alone while it warms up.
    """
    critic = learner.critic
    free_gradients(learner)
    pack_stats = backward(learner.policy, packs, objective, learner.group, critic.weights if critic else ())
    move_gradients(learner.masters)
    grad_norm = full_tensor(nn.utils.clip_grad_norm_(learner.stepped, config.max_grad_norm))
    stats = read_stats(pack_stats, grad_norm, learner.group)
    if not stats.allows_step(config.kl_stop.limit):
        return stats
    if critic is not None:
        critic.step()
    if critic is None or not critic.is_warming_up:
        for settings in learner.optimizer.param_groups:
            settings["lr"] = learning_rate(config, learner.optimizer_steps)
        learner.optimizer.step()
        round_masters(learner.masters)
        learner.optimizer_steps += 1
    return stats


def free_gradients(learner: Learner) -> None:
    """Free all gradients.

    They take as much memory as the trained weights, and later stages keep the policy in memory.
    """
    learner.optimizer.zero_grad(set_to_none=True)
    if learner.critic is not None:
        learner.critic.optimizer.zero_grad(set_to_none=True)


def learning_rate(config: UpdateConfig, optimizer_steps: int) -> float:
    """Return the learning rate after `optimizer_steps` steps: it rises over the warm-up, then stays constant."""
    return config.learning_rate * min(1.0, (optimizer_steps + 1) / max(1, config.warmup_steps))


def _minibatches(rollouts: Sequence[Rollout], config: UpdateConfig, seed: int) -> Iterator[list[int]]:
    """Yield the rows of each optimizer step, shuffled across tasks and again in every epoch. Pairs stay whole."""
    size, together = config.minibatch or len(rollouts), bundles(rollouts, range(len(rollouts)))
    for epoch in range(config.epochs):
        order = np.arange(len(together))
        if config.shuffle:
            np.random.Generator(np.random.PCG64(derive_seed(seed, "epoch", epoch))).shuffle(order)
        minibatch: list[int] = []
        for bundle in (together[index] for index in order):
            if minibatch and len(minibatch) + len(bundle) > size:
                yield minibatch
                minibatch = []
            minibatch = [*minibatch, *bundle]
        yield minibatch


def _require_pairs(rollouts: Sequence[Rollout], config: UpdateConfig) -> None:
    if config.objective in PAIRED and any(rollout.pair is None for rollout in rollouts):
        raise ValueError(f"update.objective: {config.objective}: the batch has no pairs; set advantages.pair_gap")


def _first_epoch(minibatches: Sequence[Sequence[int]], rollouts: int) -> Sequence[Sequence[int]]:
    """Return the minibatches in whose packs a policy of lower precision computes the fixed values.

    A GPU's kernels add in another order for another shape, and bfloat16 rounds the difference up to importance weights
    that leave the clip range. The same pack gives the same bits: the first weights are 1, and through the first epoch
    only the policy's steps change them. Packs of later epochs hold other rollouts side by side, so this noise is back.
    """
    seen = np.cumsum([len(minibatch) for minibatch in minibatches])
    return minibatches[: int(np.searchsorted(seen, rollouts)) + 1]


def _computes_in_float32(policy: nn.Module) -> bool:
    return next(policy.parameters()).dtype == torch.float32


def _explained(stats: StepStats, label: str, names: Sequence[str]) -> str:
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return (
        f"{label}: loss {stats.loss}, gradient norm {stats.grad_norm}, from {shown}; nothing was saved. "
        "Lower update.learning_rate or update.max_grad_norm, or look for a damaged checkpoint"
    )


def _device(policy: nn.Module) -> torch.device:
    return next(policy.parameters()).device
