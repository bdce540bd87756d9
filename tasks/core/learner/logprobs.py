"""Log-probs and entropies of policy tokens, those that a step differentiates and those that stay fixed during an
update.

The head is applied to the policy tokens of a pack only, chunk by chunk. So a whole [tokens, vocabulary] tensor never
exists, not even in the backward pass, which recomputes each chunk's logits.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint
from tqdm import tqdm

from tasks.core.learner.critic import Credit, Critic, Floats
from tasks.core.learner.distributed import SINGLE, ProcessGroup, is_sharded
from tasks.core.learner.model import is_packed, known_positions, language_model
from tasks.core.learner.packing import Pack, Pass, Rollout, TrainingPack
from tasks.core.policies.head import body_of, logits_of
from tasks.core.policies.pass_threads import map_passes


def can_fuse(logits: Tensor, *, entropy: bool) -> bool:
    """Return whether the fused kernel can be used. Entropies need the logits afterwards, which it overwrites."""
    return logits.is_cuda and not entropy and fused_kernel() is not None


@cache
def fused_kernel() -> Callable[..., Tensor] | None:
    """Return Liger's cross-entropy, which overwrites the logits, or None where it is not installed."""
    try:
        from liger_kernel.transformers.functional import liger_cross_entropy
    except ImportError:
        return None
    return liger_cross_entropy  # type: ignore[no-any-return]


SHARDED_FORWARD = "sharded_forward_pass"
T = TypeVar("T")
Head = Callable[[Tensor], Tensor]
"""Maps hidden states [P, d] to logits [P, V], float32 where the model's head has lower precision."""


class TokenLogprobs(NamedTuple):
    """Log-probs and entropies of P policy tokens."""

    logprobs: Tensor
    """[P] float32, of the distribution at the sampling temperature."""
    entropies: Tensor | None
    """[P] float32, in nats, of the same distribution."""
    states: Tensor | None = None
    """[P, d] the hidden states that predict the tokens, detached: the critic's input."""


def token_logprobs(policy: nn.Module, pass_: Pass, temperature: float, chunk: int, *, entropy: bool) -> TokenLogprobs:
    """Run one forward pass. Differentiable in the log-probs and, if `entropy`, in the entropies."""
    run = getattr(policy, SHARDED_FORWARD, None) or partial(forward_pass, policy)
    stats: TokenLogprobs = run(pass_, temperature, chunk, entropy)
    return stats


def joined(parts: Sequence[TokenLogprobs]) -> TokenLogprobs:
    """Return the values of a pack from those of its passes."""
    if len(parts) == 1:
        return parts[0]
    columns = [[part for part in column if part is not None] for column in zip(*parts, strict=True)]
    logprobs, entropies, states = (torch.cat(column) if column else None for column in columns)
    assert logprobs is not None
    return TokenLogprobs(logprobs, entropies, states)


def map_packs(run: Callable[[Pack], T], policy: nn.Module, packs: Sequence[Pack], group: ProcessGroup) -> Iterator[T]:
    """Return the results of `run`, which passes a pack through `policy`, in the order of the packs.

    On a CPU several packs run at a time. A sharded policy takes one after the other: the ranks gather its weights
    together.
    """
    if is_sharded(policy):
        return map(run, packs)
    return map_passes(run, packs, next(policy.parameters()).device, group.local_size)


def forward_pass(policy: nn.Module, pass_: Pass, temperature: float, chunk: int, entropy: bool) -> TokenLogprobs:
    """Run the pass itself. On a sharded policy call it as the method SHARDED_FORWARD, which gathers the weights."""
    model = language_model(policy)
    states = hidden_states(model, pass_)
    token_stats = head_logprobs(states, pass_.targets, partial(logits_of, model), temperature, chunk, entropy=entropy)
    return token_stats._replace(states=states.detach())


def hidden_states(model: nn.Module, pass_: Pass) -> Tensor:
    """Return the last hidden states [P, d] from which the policy tokens of `pass_` are predicted.

    Raises ValueError for a rollout beyond the length up to which the model's positions are known.
    """
    longest, body = known_positions(model), body_of(model)
    if longest is not None and pass_.longest > longest:
        raise ValueError(
            f"{type(model).__name__}: a rollout of {pass_.longest} positions, but its rotary factors are fixed "
            f"for {longest}: policy.context_length must be at most {longest}"
        )
    if is_packed(model):
        states: Tensor = body(
            input_ids=pass_.input_ids,
            position_ids=pass_.position_ids,
            use_cache=False,
            rollout_lengths=pass_.lengths,
            rollouts_behind=pass_.behind,
        )[0]
        return states[0, pass_.logit_positions]
    start, parts = 0, []
    of_sequence = torch.split(pass_.logit_positions, pass_.sequence_tokens)
    for ids, positions in zip(torch.split(pass_.input_ids, list(pass_.lengths), dim=1), of_sequence, strict=True):
        parts.append(body(input_ids=ids, use_cache=False)[0][0, positions - start])
        start += ids.shape[1]
    return torch.cat(parts)


def head_logprobs(
    states: Tensor, targets: Tensor, head: Head, temperature: float, chunk: int, *, entropy: bool
) -> TokenLogprobs:
    """Apply `head` to states [P, d] with targets [P], with at most `chunk` tokens' logits in memory at a time."""
    single = len(targets) <= chunk or not torch.is_grad_enabled()
    parts = [
        _chunk(state, target, head, temperature, entropy)
        if single
        else checkpoint(
            _chunk, state, target, head, temperature, entropy, use_reentrant=False, preserve_rng_state=False
        )
        for state, target in zip(torch.split(states, chunk), torch.split(targets, chunk), strict=True)
    ]
    logprobs = torch.cat([part[0] for part in parts])
    return TokenLogprobs(logprobs, torch.cat([part[1] for part in parts]) if entropy else None)


def _chunk(states: Tensor, targets: Tensor, head: Head, temperature: float, entropy: bool) -> tuple[Tensor, Tensor]:
    logits = head(states).float()
    if temperature != 1:
        logits = logits / temperature
    if can_fuse(logits, entropy=entropy):
        kernel: Any = fused_kernel()
        return -kernel(logits, targets, reduction="none"), logits.new_empty(0)
    logprobs = -cross_entropy(logits, targets, reduction="none")
    return logprobs, _entropies(logits) if entropy else logprobs.new_empty(0)


def _entropies(logits: Tensor) -> Tensor:
    """Return entropies [P] of logits [P, V] as log Z - sum p logit: one [P, V] temporary less than - sum p log p.

    A token of probability 0 adds nothing: its logit -inf, as heads that mask unused rows give, would make 0 * -inf.
    """
    finite = logits.masked_fill(logits.isneginf(), torch.finfo(logits.dtype).min)
    return torch.logsumexp(finite, -1) - torch.einsum("pv,pv->p", torch.softmax(finite, -1), finite)


ReferenceView = Callable[[], AbstractContextManager[nn.Module]]
"""Opens a view of the policy as its base model is (LoRA: with the adapter switched off). The caller drops its
reference to the view before closing it.
"""


class Reading(Protocol):
    """The values that an `Objective` says it needs: the base policy's log-probs, and a critic's credit."""

    @property
    def reference(self) -> bool: ...
    @property
    def critic(self) -> Critic | None: ...
    def logprobs(self, policy: nn.Module, pack: Pack, *, entropy: bool) -> TokenLogprobs: ...


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
    objective: Reading,
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
    policy: nn.Module, packs: Sequence[Pack], rollouts: Sequence[Rollout], objective: Reading, group: ProcessGroup
) -> list[Tensor]:
    """Return log-probs [P] of each of `rollouts`, of which `packs` are this rank's share (collective)."""
    return _logprobs(policy, packs, rollouts, objective, group, of_old=False)[0]


def _logprobs(
    policy: nn.Module,
    packs: Sequence[Pack],
    rollouts: Sequence[Rollout],
    objective: Reading,
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
    bar = tqdm(
        results, desc="log-probs", unit="pack", total=len(packs), leave=False, disable=None if group.is_main else True
    )
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
