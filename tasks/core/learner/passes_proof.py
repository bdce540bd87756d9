"""Proof that the learner's forward passes compute the model's own function, and the choice of the fastest exact way.

Probe sequences of different lengths, on both sides of each window that the config names, go through the model's own
forward pass with the eager attention of its own file, and through the learner's, packed and one to a pass.
"""

import logging
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from tasks.core.config.update import UpdateConfig
from tasks.core.learner.engine_noise import difference
from tasks.core.learner.logprobs import token_logprobs
from tasks.core.learner.packing import pack_rollouts
from tasks.core.learner.passes import WAYS, language_model, pack_capacity, suggested, use_passes
from tasks.core.learner.rollouts import Rollout, whole_rollout
from tasks.core.policies.delivery_probe import COMMON_IDS
from tasks.core.policies.head import body_of, logits_of
from tasks.core.policies.layers import use_own_attention
from tasks.core.policies.positions import probe_lengths
from tasks.core.records.training import Passes

_log = logging.getLogger(__name__)
_DIFFERS: dict[Passes, str] = {"packed": "packing", "single": "attention", "single_eager": "head"}
"""The part that differs where a way is not exact and the next way is."""


class AnotherFunction(ValueError):  # noqa: N818 - named after the finding
    """A learner or engine that computes another function than the model's own forward pass."""


@torch.no_grad()
def prove_passes(policy: nn.Module, config: UpdateConfig) -> Passes:
    """Return the fastest way in which the learner's passes are exact, and make `policy` use it.

    The policy's adapter should not be zero. Each rank proves it by itself (collective). Raises AnotherFunction naming
    the architecture and the part that differs.
    """
    model, dtype = language_model(policy), next(policy.parameters()).dtype
    rollouts = [whole_rollout(ids) for ids in probe_sequences(model)]
    use_own_attention(model)
    expected = [own_logprobs(policy, rollout) for rollout in rollouts]
    parts: list[str] = []
    for way in WAYS[WAYS.index(suggested(policy)) :]:
        use_passes(policy, way)
        try:
            apart = difference(_read(policy, rollouts, config), expected, dtype)
        except (TypeError, ValueError, AttributeError) as error:
            parts.append(f"{_DIFFERS[way]} ({error})")
            continue
        if apart is None:
            if parts:
                _log.warning("%s uses passes of kind %s: %s", type(model).__name__, way, "; ".join(parts))
            return way
        parts.append(f"{_DIFFERS[way]} (by {apart:.2g} nats)")
    raise AnotherFunction(
        f"{type(model).__name__}: the learner's log-probs differ from those of the model's own forward pass in "
        f"{'; '.join(_in_the_head(policy, rollouts[0]) or parts)}. policy.source: this architecture cannot be trained"
    )


def own_logprobs(policy: nn.Module, rollout: Rollout) -> Tensor:
    """Return the log-probs [P] of a rollout's policy tokens by one call of the policy's own forward pass."""
    ids = torch.from_numpy(rollout.token_ids).to(next(policy.parameters()).device)
    logits: Tensor = policy(input_ids=ids[None], use_cache=False).logits[0]
    positions = torch.from_numpy(rollout.policy_positions).to(ids.device)
    return logits[positions - 1].float().log_softmax(-1).gather(1, ids[positions, None])[:, 0]


def probe_sequences(model: nn.Module) -> list[list[int]]:
    """Return sequences of ids that every vocabulary has, of the lengths that the model's config asks for."""
    config = language_model(model).config.get_text_config()
    known, generator = min(COMMON_IDS, config.vocab_size), np.random.Generator(np.random.PCG64(0))
    return [generator.integers(0, known, length).tolist() for length in probe_lengths(config.to_dict())]


def _read(policy: nn.Module, rollouts: Sequence[Rollout], config: UpdateConfig) -> list[Tensor]:
    """Return the learner's log-probs [P] of each rollout."""
    device, logprobs_by_row = next(policy.parameters()).device, dict[int, Tensor]()
    together = pack_capacity(policy, sum(rollout.length for rollout in rollouts))
    for pack in pack_rollouts(rollouts, range(len(rollouts)), together, device):
        read = token_logprobs(policy, pack, 1.0, config.logprob_chunk, entropy=False).logprobs
        logprobs_by_row.update(zip(pack.rows, torch.split(read, pack.policy_tokens), strict=True))
    return [logprobs_by_row[row] for row in range(len(rollouts))]


def _in_the_head(policy: nn.Module, rollout: Rollout) -> list[str]:
    """Return a description if the head alone computes other logits from the model's own hidden states, else nothing."""
    model = language_model(policy)
    ids = torch.from_numpy(rollout.token_ids).to(next(policy.parameters()).device)[None]
    own_logits = policy(input_ids=ids, use_cache=False).logits[0].float()
    apart = (logits_of(model, body_of(model)(input_ids=ids, use_cache=False)[0][0]).float() - own_logits).abs().max()
    return [f"head (logits by {float(apart):.2g})"] if apart > 1e-3 * own_logits.abs().max() else []
