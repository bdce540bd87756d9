"""The learner's record of a policy, which proves that an engine samples from this policy. It lies in the checkpoint.

The record holds log-probs from the learner's own model, dtype, device and kernels, at temperature 1. The learner reads
the tokens before the update, after it, and with the adapter switched off.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from tasks.core.config.update import UpdateConfig
from tasks.core.learner.distributed import SINGLE, ProcessGroup
from tasks.core.learner.logprobs import map_packs, token_logprobs
from tasks.core.learner.packing import Pack, pack_rollouts
from tasks.core.learner.passes import pack_capacity
from tasks.core.learner.rollouts import Rollout, whole_rollout
from tasks.core.policies.delivery_probe import common_ids, probe_sequence, read_probe
from tasks.core.records.delivery_probe import DeliveryProbe

WINDOWS = 16
WINDOW_TOKENS = 96
CONTEXT_TOKENS = 32
"""Tokens of a window before the turn that it covers."""


class ProbeTokens(NamedTuple):
    """The token ids of the record's two parts: `lasting`, kept from record to record, and windows of the batch."""

    lasting: list[list[int]]
    trained_on: list[list[int]]


Readings = list[list[float]]
"""Log-probs of every id of each sequence except its first."""


def probe_tokens(previous: Path, vocabulary: int, rollouts: Sequence[Rollout]) -> ProbeTokens:
    """Return the tokens to read: the lasting ones of `previous`'s record (or common ids), and windows of the batch."""
    before = read_probe(previous)
    lasting = [list(sequence.token_ids) for sequence in before.lasting] if before else [common_ids(vocabulary)]
    return ProbeTokens(lasting, batch_windows(rollouts))


def batch_windows(rollouts: Sequence[Rollout]) -> list[list[int]]:
    """Return windows of at most WINDOW_TOKENS ids around turns of the rollouts with the largest advantages.

    The update moves the policy most there. A window begins in the middle of a conversation: the policy's log-probs
    there identify it as well, and a server reads a prompt of 96 tokens instead of 30,000.
    """
    sizes = [float(np.abs(rollout.token_advantages).mean()) for rollout in rollouts]
    order = sorted(range(len(rollouts)), key=lambda row: (-sizes[row], row))
    return [_window(rollouts[row]) for row in order[:WINDOWS]]


def _window(rollout: Rollout) -> list[int]:
    """Return the rollout's longest turn, cut to the window's size, with some tokens before it."""
    turns, counts = np.unique(rollout.turns, return_counts=True)
    first = int(rollout.policy_positions[rollout.turns == turns[counts.argmax()]][0])
    begin = max(0, first - CONTEXT_TOKENS)
    ids: list[int] = rollout.token_ids[begin : begin + WINDOW_TOKENS].tolist()
    return ids


def read_tokens(policy: nn.Module, tokens: ProbeTokens, config: UpdateConfig, group: ProcessGroup = SINGLE) -> Readings:
    """Return the learner's log-probs of all sequences, lasting sequences first.

    Each rank computes all of them (collective).
    """
    sequences = [*tokens.lasting, *tokens.trained_on]
    device, readings = next(policy.parameters()).device, dict[int, list[float]]()
    rollouts = [whole_rollout(ids) for ids in sequences]

    @torch.no_grad()
    def read(pack: Pack) -> Tensor:
        return token_logprobs(policy, pack, 1.0, config.logprob_chunk, entropy=False).logprobs.cpu()

    packs = pack_rollouts(rollouts, range(len(rollouts)), pack_capacity(policy, config.tokens_per_pack), device)
    for pack, logprobs in zip(packs, map_packs(read, policy, packs, group), strict=True):
        parts = torch.split(logprobs, pack.policy_tokens)
        readings.update((row, part.tolist()) for row, part in zip(pack.rows, parts, strict=True))
    return [readings[row] for row in range(len(sequences))]


def learner_record(
    tokens: ProbeTokens, now: Readings, base: Readings | None, previous: Readings, dtype: str, device: str
) -> DeliveryProbe:
    """Return the record, not yet with a digest of weights, of a policy in `dtype` on this kind of `device`."""
    of_base: Sequence[list[float] | None] = base or [None] * len(now)
    columns = zip([*tokens.lasting, *tokens.trained_on], now, of_base, previous, strict=True)
    sequences = tuple(probe_sequence(*column) for column in columns)
    lasting = len(tokens.lasting)
    content = {"weights": None, "dtype": dtype, "device": device}
    return DeliveryProbe.model_validate({**content, "lasting": sequences[:lasting], "trained_on": sequences[lasting:]})
