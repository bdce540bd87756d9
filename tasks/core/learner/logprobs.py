"""Log-probs and entropies of the policy tokens of a pack. The head is applied to these tokens only, chunk by chunk.

So a whole [tokens, vocabulary] tensor never exists, not even in the backward pass, which recomputes each chunk's
logits.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from tasks.core.learner.distributed import ProcessGroup, is_sharded
from tasks.core.learner.packing import Pack
from tasks.core.learner.passes import is_packed, known_positions, language_model
from tasks.core.policies.head import body_of, logits_of
from tasks.core.policies.pass_threads import map_passes


def fused_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy [P] float32 of logits [P, V] float32, which it overwrites, and targets [P].

    Needs liger-kernel.
    """
    kernel: Any = fused_kernel()
    return kernel(logits, targets, reduction="none")  # type: ignore[no-any-return]


def can_fuse(logits: Tensor, *, entropy: bool) -> bool:
    """Return whether the fused kernel can be used. Entropies need the logits afterwards, which it overwrites."""
    return logits.is_cuda and not entropy and fused_kernel() is not None


@cache
def fused_kernel() -> Callable[..., Tensor] | None:
    """Return Liger's function, or None where it is not installed."""
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


def token_logprobs(policy: nn.Module, pack: Pack, temperature: float, chunk: int, *, entropy: bool) -> TokenLogprobs:
    """Run one forward pass. Differentiable in the log-probs and, if `entropy`, in the entropies."""
    run = getattr(policy, SHARDED_FORWARD, None) or partial(forward_pass, policy)
    stats: TokenLogprobs = run(pack, temperature, chunk, entropy)
    return stats


def map_packs(run: Callable[[Pack], T], policy: nn.Module, packs: Sequence[Pack], group: ProcessGroup) -> Iterator[T]:
    """Return the results of `run`, which passes a pack through `policy`, in the order of the packs.

    On a CPU several packs run at a time. A sharded policy takes one after the other: the ranks gather its weights
    together.
    """
    if is_sharded(policy):
        return map(run, packs)
    return map_passes(run, packs, next(policy.parameters()).device, group.local_size)


def forward_pass(policy: nn.Module, pack: Pack, temperature: float, chunk: int, entropy: bool) -> TokenLogprobs:
    """Run the pass itself. On a sharded policy call it as the method SHARDED_FORWARD, which gathers the weights."""
    model = language_model(policy)
    states = hidden_states(model, pack)
    token_stats = head_logprobs(states, pack.targets, partial(logits_of, model), temperature, chunk, entropy=entropy)
    return token_stats._replace(states=states.detach())


def hidden_states(model: nn.Module, pack: Pack) -> Tensor:
    """Return the last hidden states [P, d] from which the policy tokens of `pack` are predicted.

    Raises ValueError for a rollout beyond the length up to which the model's positions are known.
    """
    longest, body = known_positions(model), body_of(model)
    if longest is not None and max(pack.lengths) > longest:
        raise ValueError(
            f"{type(model).__name__}: a rollout of {max(pack.lengths)} positions, but its rotary factors are fixed for "
            f"{longest}: policy.context_length must be at most {longest}"
        )
    if is_packed(model):
        states: Tensor = body(
            input_ids=pack.input_ids, position_ids=pack.position_ids, use_cache=False, rollout_lengths=pack.lengths
        )[0]
        return states[0, pack.logit_positions]
    start, parts = 0, []
    positions_by_rollout = torch.split(pack.logit_positions, pack.policy_tokens)
    for ids, positions in zip(
        torch.split(pack.input_ids, list(pack.lengths), dim=1), positions_by_rollout, strict=True
    ):
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
        return -fused_cross_entropy(logits, targets), logits.new_empty(0)
    logprobs = -cross_entropy(logits, targets, reduction="none")
    return logprobs, _entropies(logits) if entropy else logprobs.new_empty(0)


def _entropies(logits: Tensor) -> Tensor:
    """Return entropies [P] of logits [P, V] as log Z - sum p logit: one [P, V] temporary less than - sum p log p."""
    return torch.logsumexp(logits, -1) - torch.einsum("pv,pv->p", torch.softmax(logits, -1), logits)
