"""Packs: whole rollouts side by side in one row that ends with the last of them, so no position is padding."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from tasks.core.learner.distributed import SINGLE, ProcessGroup
from tasks.core.learner.rollouts import Rollout, bundles


@dataclass(frozen=True)
class Pack:
    """R rollouts in one row of T positions with P policy tokens, ready for one forward pass.

    Tensors are on the policy's device; the counts are on the host, so that nothing waits for the device to count.
    """

    rows: tuple[int, ...]
    """[R] the rollouts' indices in the batch, in the order in which they lie in the row."""
    pairs: tuple[tuple[int, int], ...]
    """(better, worse) of each pair of rollouts, as indices into `rows`; a pair lies in one pack."""
    lengths: tuple[int, ...]
    """[R] positions of each rollout; attention stays inside them."""
    policy_tokens: list[int]
    """[R] policy tokens of each rollout."""
    turn_count: int
    """Assistant turns of all rollouts."""
    input_ids: Tensor
    """[1, T] int64"""
    position_ids: Tensor
    """[1, T] int64, restarting at 0 with every rollout"""
    logit_positions: Tensor
    """[P] int64, the row's positions whose hidden states predict the policy tokens."""
    targets: Tensor
    """[P] int64, the ids of the policy tokens."""
    rollout_ids: Tensor
    """[P] int64 in 0..R-1, the rollout of each policy token, in rising order."""
    turns: Tensor
    """[P] int64, the assistant turn of each policy token."""
    advantages: Tensor
    """[P] float32, of each policy token."""
    behaviour_logprobs: Tensor
    """[P] float32, of the policy tokens when they were sampled, as the engine reported them."""
    is_padding: bool
    """Whether this pack only keeps its rank in step with the others and counts for nothing."""


@dataclass(frozen=True)
class TrainingPack(Pack):
    """A pack with the log-probs that an update computes once, before its first step."""

    old_logprobs: Tensor
    """[P] float32, of the policy before the update."""
    reference_logprobs: Tensor | None
    """[P] float32, of the base policy; None where the objective does not use it."""
    value_targets: Tensor | None
    """[P] float32, what a critic should predict before each policy token; None without a critic."""


def first_fit_decreasing(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Return indices of `lengths` in bins whose sums stay within `capacity`; a longer item gets a bin of its own.

    Longest first, each into the first bin with room (ties: the lower index): at most 11/9 of the fewest bins plus one.
    """
    bins: list[list[int]] = []
    room: list[int] = []
    for item in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        bin_index = next((number for number, free in enumerate(room) if free >= lengths[item]), None)
        if bin_index is None:
            bins.append([])
            room.append(capacity)
            bin_index = len(bins) - 1
        bins[bin_index].append(item)
        room[bin_index] -= lengths[item]
    return bins


def spread(lengths: Sequence[int], capacity: int, ranks: int) -> list[list[int]]:
    """Return bins for ranks that work side by side.

    Each next `ranks` bins are a round, which lasts as long as its fullest.

    Of several ways to fill the rounds (see `_rounds`), take the one with the least `waste`, then the fewest bins. Some
    bins are empty where there are too few items.
    """
    longest = min(max(lengths, default=0), capacity)
    limits = {longest, *(limit for part in range(1, 17) if (limit := capacity * part // 16) >= longest)}
    plans = [_rounds(lengths, limit, ranks) for limit in sorted(limits)]
    return min(plans, key=lambda bins: (waste(lengths, bins, ranks), len(bins)))


def waste(lengths: Sequence[int], bins: Sequence[Sequence[int]], ranks: int) -> float:
    """Return the share of the ranks' time, counted in positions, in which a rank waits for the fullest of its round."""
    filled = [sum(lengths[item] for item in members) for members in bins]
    spent = ranks * sum(max(filled[start : start + ranks]) for start in range(0, len(filled), ranks))
    return 1 - sum(filled) / spent if spent else 0.0


def _rounds(lengths: Sequence[int], limit: int, ranks: int) -> list[list[int]]:
    """Fill rounds of bins up to `limit` one after the other, longest items first; fill the last round evenly."""
    left = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    bins: list[list[int]] = []
    while left:
        even, rest = _fill(lengths, left, limit, ranks, emptiest=True)
        if not rest:
            return bins + even
        full, left = _fill(lengths, left, limit, ranks, emptiest=False)
        bins += full
    return bins


def _fill(
    lengths: Sequence[int], items: Sequence[int], limit: int, count: int, *, emptiest: bool
) -> tuple[list[list[int]], list[int]]:
    """Fill `count` bins: put each item into the emptiest (or fullest) bin with room.

    Return them and the items left over.
    """
    bins: list[list[int]] = [[] for _ in range(count)]
    filled, rest = [0] * count, []
    for item in items:
        candidates = [
            bin_index for bin_index in range(count) if not bins[bin_index] or filled[bin_index] + lengths[item] <= limit
        ]
        if not candidates:
            rest.append(item)
            continue
        bin_index = (min if emptiest else max)(candidates, key=filled.__getitem__)
        bins[bin_index].append(item)
        filled[bin_index] += lengths[item]
    return bins, rest


def pack_rollouts(
    rollouts: Sequence[Rollout],
    chosen: Sequence[int],
    capacity: int,
    device: torch.device,
    group: ProcessGroup = SINGLE,
) -> list[Pack]:
    """Return this rank's packs of at most `capacity` positions; the packs of all ranks hold each `chosen` rollout once.

    The two rollouts of a pair lie in one pack. Every rank gets the same number of packs; packs of the same index have
    about equally many tokens. Where no rollout is left, a rank repeats the shortest as a padding pack.
    """
    together = bundles(rollouts, chosen)
    lengths = [sum(rollouts[index].length for index in bundle) for bundle in together]
    if group.size == 1:
        bins = first_fit_decreasing(lengths, capacity)
    else:
        bins = spread(lengths, capacity, group.size)[group.rank :: group.size]
    shortest = min(range(len(lengths)), key=lengths.__getitem__, default=0)
    return [
        _pack(rollouts, [together[item] for item in members or [shortest]], device, is_padding=not members)
        for members in bins
    ]


def _pack(
    rollouts: Sequence[Rollout], members: Sequence[tuple[int, ...]], device: torch.device, *, is_padding: bool
) -> Pack:
    rows = tuple(chain.from_iterable(members))
    parts = [rollouts[index] for index in rows]
    lengths = [part.length for part in parts]
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    turns = [part.turns for part in parts]

    def tensor(*arrays: np.ndarray) -> Tensor:
        return torch.from_numpy(np.concatenate(arrays)).to(device)

    return Pack(
        rows=rows,
        pairs=tuple((rows.index(bundle[0]), rows.index(bundle[1])) for bundle in members if len(bundle) == 2),
        lengths=tuple(lengths),
        policy_tokens=[len(part.policy_positions) for part in parts],
        turn_count=sum(1 + int(np.count_nonzero(np.diff(rollout_turns))) for rollout_turns in turns),
        input_ids=tensor(*(part.token_ids[: part.length] for part in parts))[None],
        position_ids=tensor(*(np.arange(length) for length in lengths))[None],
        logit_positions=tensor(*(part.policy_positions - 1 + start for part, start in zip(parts, starts, strict=True))),
        targets=tensor(*(part.token_ids[part.policy_positions] for part in parts)),
        rollout_ids=tensor(*(np.full(len(part.policy_positions), row) for row, part in enumerate(parts))),
        turns=tensor(*turns),
        advantages=tensor(*(part.token_advantages for part in parts)),
        behaviour_logprobs=tensor(*(part.engine_logprobs for part in parts)),
        is_padding=is_padding,
    )
