"""A record that the learner makes of a policy so that an engine can be proven to sample from it, with the checkpoint.

The record is the learner's own reading: its model, dtype, device and kernels. It reads the tokens before the update,
after it, and with the adapter switched off, at temperature 1.
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
"""Tokens of a window before the turn that it is about."""


class ProbeTokens(NamedTuple):
    """The token ids of a record's two parts."""

    lasting: list[list[int]]
    trained_on: list[list[int]]


Readings = list[list[float]]
"""Log-probs of the second and later ids of each sequence."""


def probe_tokens(previous: Path, vocabulary: int, rollouts: Sequence[Rollout]) -> ProbeTokens:
    """The tokens to be read: those that the record beside the policy `previous` hands on, and windows of the batch."""
    before = read_probe(previous)
    lasting = [list(one.token_ids) for one in before.lasting] if before else [common_ids(vocabulary)]
    return ProbeTokens(lasting, batch_windows(rollouts))


def batch_windows(rollouts: Sequence[Rollout]) -> list[list[int]]:
    """Windows of at most WINDOW_TOKENS ids around turns of the rollouts whose advantages are largest.

    There the update moves the policy most. A window begins in the middle of a conversation: what the policy makes of it
    is as much its own, and costs a server a prompt of 96 tokens instead of 30,000.
    """
    sizes = [float(np.abs(rollout.token_advantages).mean()) for rollout in rollouts]
    order = sorted(range(len(rollouts)), key=lambda row: (-sizes[row], row))
    return [_window(rollouts[row]) for row in order[:WINDOWS]]


def _window(rollout: Rollout) -> list[int]:
    """The rollout's longest turn, as far as it goes in, with some tokens before."""
    turns, counts = np.unique(rollout.turns, return_counts=True)
    first = int(rollout.policy_positions[rollout.turns == turns[counts.argmax()]][0])
    begin = max(0, first - CONTEXT_TOKENS)
    ids: list[int] = rollout.token_ids[begin : begin + WINDOW_TOKENS].tolist()
    return ids


def read_tokens(policy: nn.Module, tokens: ProbeTokens, config: UpdateConfig, group: ProcessGroup = SINGLE) -> Readings:
    """The learner's log-probs of all sequences, lasting ones first. Of several ranks each computes all (collective)."""
    sequences = [*tokens.lasting, *tokens.trained_on]
    place, found = next(policy.parameters()).device, dict[int, list[float]]()
    rollouts = [whole_rollout(ids) for ids in sequences]

    @torch.no_grad()
    def read(pack: Pack) -> Tensor:
        return token_logprobs(policy, pack, 1.0, config.logprob_chunk, entropy=False).logprobs.cpu()

    packs = pack_rollouts(rollouts, range(len(rollouts)), pack_capacity(policy, config.tokens_per_pack), place)
    for pack, logprobs in zip(packs, map_packs(read, policy, packs, group), strict=True):
        parts = torch.split(logprobs, pack.policy_tokens)
        found.update((row, part.tolist()) for row, part in zip(pack.rows, parts, strict=True))
    return [found[row] for row in range(len(sequences))]


def learner_record(
    tokens: ProbeTokens, now: Readings, base: Readings | None, previous: Readings, dtype: str, device: str
) -> DeliveryProbe:
    """The record of weights that are not on disk yet, of a policy in `dtype` on a `device` of this kind."""
    of_base: Sequence[list[float] | None] = base or [None] * len(now)
    columns = zip([*tokens.lasting, *tokens.trained_on], now, of_base, previous, strict=True)
    sequences = tuple(probe_sequence(*column) for column in columns)
    lasting = len(tokens.lasting)
    content = {"weights": None, "dtype": dtype, "device": device}
    return DeliveryProbe.model_validate({**content, "lasting": sequences[:lasting], "trained_on": sequences[lasting:]})
