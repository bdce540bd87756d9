"""One LOOP policy update: old log-probs, then epochs of minibatches with one optimizer step each (LOOP, algorithm 1).

The learner sees token ids, masks, turns, advantages and a frozen config. It knows no worlds, engines or files.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from tasks.core.config.monitor import InformationConfig
from tasks.core.config.update import UpdateConfig
from tasks.core.learner.critic import Critic
from tasks.core.learner.distributed import SINGLE, ProcessGroup, full_tensor, is_sharded, set_gradient_sync, shard
from tasks.core.learner.logprobs import (
    SHARDED_FORWARD,
    ReferenceView,
    TokenLogprobs,
    compute_fixed_logprobs,
    forward_pass,
    map_packs,
)
from tasks.core.learner.model import (
    checkpoint_activations,
    fold_adapter,
    is_packed,
    narrow_adapter,
    pack_capacity,
    use_passes,
)
from tasks.core.learner.objective import Objective, PackStats, StepStats, read_stats
from tasks.core.learner.packing import (
    Pass,
    Rollout,
    TrainingPack,
    draw_minibatches,
    first_epoch,
    pack_rollouts,
    require_pairs,
)
from tasks.core.learner.prompt_information import UNMEASURED, measure_information, sample_pairs
from tasks.core.policies.head import use_float32_logits
from tasks.core.policies.loading import is_lora
from tasks.core.policies.pass_threads import add_gradients
from tasks.core.processes.shown_work import shown_work
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
    optimizer = AdamW(stepped, betas=config.betas, weight_decay=config.weight_decay, fused=True)  # a step sets its rate
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
    require_pairs(rollouts, config)
    objective = Objective.of(config, len(rollouts), temperature, stale=stale, critic=learner.critic)
    capacity = pack_capacity(policy, config.tokens_per_pack)
    pack = partial(
        pack_rollouts,
        rollouts,
        capacity=capacity,
        device=_device(policy),
        group=group,
        pass_tokens=config.tokens_per_pack,
        share_prefixes=config.share_prefixes and is_packed(policy),
    )
    minibatches = list(draw_minibatches(rollouts, config, seed))
    rows = [range(len(rollouts))] if _computes_in_float32(policy) else first_epoch(minibatches, len(rollouts))
    first = [packed for chosen in rows for packed in pack(chosen)]
    fixed = compute_fixed_logprobs(policy, first, rollouts, objective, reference_view, group)
    prompts, pairs = sample_pairs(rollouts, information, derive_seed(seed, "information"))
    measured = measure_information(policy, prompts, pairs, objective, capacity, group)
    steps: list[StepStats] = []
    total = sum(map(len, minibatches))
    with shown_work(name, total, "rollout") if group.is_main else nullcontext() as work:
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
            if work is not None:
                work.advance(len(minibatch))
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


PassLoss = Callable[[], tuple[Tensor, PackStats | None]]
"""A forward pass: returns the loss [] to differentiate and, with the first pass of a pack, the pack's sums."""


def backward(
    policy: nn.Module,
    packs: Sequence[TrainingPack],
    objective: Objective,
    group: ProcessGroup = SINGLE,
    beside: Sequence[nn.Parameter] = (),
) -> list[PackStats]:
    """Run loss, stats = objective(policy, pack); loss.backward() on each pack. Return the stats, in the packs' order.

    Gradients are added over the ranks (collective). Padding packs take part and leave no stats. `beside`: further
    weights that the objective trains, each whole on every rank.
    """
    trained = [*(weight for weight in policy.parameters() if weight.requires_grad), *beside]
    passes = _pass_losses(policy, packs, objective, group)
    if is_sharded(policy):
        stats = _backward_sharded(policy, passes)
        _add_over_ranks(beside, group)
    else:
        stats = add_gradients(lambda loss_of: loss_of(), passes, trained, group.local_size)
        _add_over_ranks(trained, group)
    found = [stat for stat in stats if stat is not None]
    return [stat for stat, pack in zip(found, packs, strict=True) if not pack.is_padding]


def _pass_losses(
    policy: nn.Module, packs: Sequence[TrainingPack], objective: Objective, group: ProcessGroup
) -> list[PassLoss]:
    """Return the passes of all packs, in their order; the packs of several passes are read first (collective)."""
    several = [pack for pack in packs if len(pack.pieces_by_pass) > 1]
    values = map_packs(torch.no_grad()(partial(objective.logprobs, policy)), policy, several, group)
    losses: list[PassLoss] = []
    for pack in packs:
        if len(pack.pieces_by_pass) == 1:
            losses.append(partial(objective, policy, pack))
        else:
            losses += _one_at_a_time(policy, pack, objective, next(values))
    return losses


def _one_at_a_time(
    policy: nn.Module, pack: TrainingPack, objective: Objective, values: TokenLogprobs
) -> Iterator[PassLoss]:
    """Yield the passes of a pack, so that the activations of one alone are in memory.

    A loss joins tokens of several passes. Its derivative by each token's log-prob (and entropy), from `values`, is that
    token's weight in a sum over its own pass, whose gradient is the loss's. The gradient of a critic is added here.
    """
    differentiated = [part if part is None else part.requires_grad_() for part in values[:2]]
    loss, stats = objective.of_logprobs(values, pack)
    loss.backward()  # type: ignore[no-untyped-call]
    slopes = [None if part is None else part.grad for part in differentiated]
    taken = 0
    for pass_, pieces in zip(pack.passes(), pack.pieces_by_pass, strict=True):
        count = len(pass_.targets) if pieces else 0  # a pass of padding weighs nothing
        weights = [None if slope is None else slope[taken : taken + count] for slope in slopes]
        yield partial(_weighted, policy, pass_, objective, weights, None if taken else stats)
        taken += count


def _weighted(
    policy: nn.Module, pass_: Pass, objective: Objective, weights: Sequence[Tensor | None], stats: PackStats | None
) -> tuple[Tensor, PackStats | None]:
    """Return the sum [] of a pass's log-probs and entropies by `weights`, [P] for each, or [0] in a pass of padding."""
    values = objective.of_pass(policy, pass_)[:2]
    total = values[0].sum() * 0
    for value, weight in zip(values, weights, strict=True):
        if value is not None and weight is not None and len(weight):
            total = total + (value * weight).sum()
    return total, stats


def _backward_sharded(policy: nn.Module, passes: Sequence[PassLoss]) -> list[PackStats | None]:
    """Run one pass after the other; all ranks run side by side.

    The ranks add an adapter's gradients up at the last pass, and those of a fully trained policy at every pass, because
    gradients that are not added up yet lie whole on every rank.
    """
    pack_stats = []
    for number, loss_of in enumerate(passes):
        set_gradient_sync(policy, number == len(passes) - 1 or not is_lora(policy))
        loss, stats = loss_of()
        loss.backward()  # type: ignore[no-untyped-call]
        pack_stats.append(stats)
    return pack_stats


def _add_over_ranks(trained: Sequence[nn.Parameter], group: ProcessGroup) -> None:
    """Add gradients over the ranks one tensor at a time: adding all at once would need two more copies of them."""
    for weight in trained:
        if weight.grad is not None and group.size > 1:
            weight.grad.copy_(group.sum(weight.grad))


def rollouts_not_finite(
    policy: nn.Module, packs: Sequence[TrainingPack], objective: Objective, batch: int, group: ProcessGroup
) -> list[int]:
    """Return the rows, of `batch` rows, whose own loss is not finite, else those whose own gradient is not.

    `packs` hold one rollout each, so each gets a pass of its own. Several ranks pass one rollout each and add their
    gradients up, so all rollouts of a round that failed are named (collective). Leaves no gradient behind.
    """
    losses: list[int] = []
    gradients: list[int] = []
    for pack in packs:
        policy.zero_grad(set_to_none=True)
        stats = backward(policy, [pack], objective, group)
        grads = [weight.grad for weight in policy.parameters() if weight.grad is not None]
        norm = full_tensor(nn.utils.get_total_norm(grads))
        losses += [row for stat in stats for row in pack.rows if not stat.loss.isfinite()]
        gradients += [row for _ in stats for row in pack.rows if not norm.isfinite()]
    policy.zero_grad(set_to_none=True)
    return _on_any_rank(losses, batch, group) or _on_any_rank(gradients, batch, group)


def _on_any_rank(rows: Iterable[int], batch: int, group: ProcessGroup) -> list[int]:
    marks = torch.zeros(batch)
    marks[list(rows)] = 1
    return [int(row) for row in group.sum(marks).nonzero().flatten()]
