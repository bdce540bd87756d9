"""Whole rollouts side by side in one row that ends with the last of them: no position is ever padding."""

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
    """(better, worse) of each pair of rollouts, as places in the row; a pair lies in one pack."""
    lengths: tuple[int, ...]
    """[R] positions of each; attention stays inside them."""
    policy_tokens: list[int]
    """[R] policy tokens of each."""
    turn_count: int
    """Assistant turns of all of them."""
    input_ids: Tensor
    """[1, T] int64"""
    position_ids: Tensor
    """[1, T] int64, restarting at 0 with every rollout."""
    logit_positions: Tensor
    """[P] int64, the positions of the row whose hidden states predict the policy tokens."""
    targets: Tensor
    """[P] int64, the ids of the policy tokens."""
    rollout_ids: Tensor
    """[P] int64 in 0..R-1, the rollout of each policy token, rising."""
    turns: Tensor
    """[P] int64, the assistant turn of each policy token."""
    advantages: Tensor
    """[P] float32, of each policy token."""
    behaviour_logprobs: Tensor
    """[P] float32, of the policy tokens when they were sampled, as the engine reported them."""
    is_padding: bool
    """A pass that only keeps this rank in step with the others: it counts for nothing."""


@dataclass(frozen=True)
class TrainingPack(Pack):
    """A pack with the log-probs that an update computes once, before its first step."""

    old_logprobs: Tensor
    """[P] float32, of the policy before the update."""
    reference_logprobs: Tensor | None
    """[P] float32, of the base policy; None where the objective has no use for it."""
    value_targets: Tensor | None
    """[P] float32, what a critic should say before each policy token; None without one."""


def first_fit_decreasing(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Indices of `lengths` in bins whose sums stay within `capacity`; a longer item gets a bin of its own.

    Longest first, each into the first bin with room (ties: the lower index): at most 11/9 of the fewest bins plus one.
    """
    bins: list[list[int]] = []
    room: list[int] = []
    for item in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        place = next((number for number, free in enumerate(room) if free >= lengths[item]), None)
        if place is None:
            bins.append([])
            room.append(capacity)
            place = len(bins) - 1
        bins[place].append(item)
        room[place] -= lengths[item]
    return bins


def spread(lengths: Sequence[int], capacity: int, ranks: int) -> list[list[int]]:
    """Bins for ranks that work side by side: each next `ranks` bins are one round, which lasts as long as its fullest.

    Of several ways to fill the rounds (see `_rounds`), the one with the least `waste`, then the fewest bins. Bins stay
    empty where there are too few items.
    """
    longest = min(max(lengths, default=0), capacity)
    limits = {longest, *(limit for part in range(1, 17) if (limit := capacity * part // 16) >= longest)}
    plans = [_rounds(lengths, limit, ranks) for limit in sorted(limits)]
    return min(plans, key=lambda bins: (waste(lengths, bins, ranks), len(bins)))


def waste(lengths: Sequence[int], bins: Sequence[Sequence[int]], ranks: int) -> float:
    """Share of the ranks' time, counted in positions, in which one waits for the fullest of its round."""
    filled = [sum(lengths[item] for item in members) for members in bins]
    spent = ranks * sum(max(filled[start : start + ranks]) for start in range(0, len(filled), ranks))
    return 1 - sum(filled) / spent if spent else 0.0


def _rounds(lengths: Sequence[int], limit: int, ranks: int) -> list[list[int]]:
    """Rounds of bins filled up to `limit` one after the other, longest items first; the last round is filled evenly."""
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
    """`count` bins, each item in the emptiest (or fullest) one that holds it, and the items that no bin held."""
    bins: list[list[int]] = [[] for _ in range(count)]
    filled, rest = [0] * count, []
    for item in items:
        places = [place for place in range(count) if not bins[place] or filled[place] + lengths[item] <= limit]
        if not places:
            rest.append(item)
            continue
        place = (min if emptiest else max)(places, key=filled.__getitem__)
        bins[place].append(item)
        filled[place] += lengths[item]
    return bins, rest


def pack_rollouts(
    rollouts: Sequence[Rollout],
    chosen: Sequence[int],
    capacity: int,
    device: torch.device,
    group: ProcessGroup = SINGLE,
) -> list[Pack]:
    """This rank's packs of at most `capacity` positions; those of all ranks hold the `chosen` rollouts, each once.

    The two rollouts of a pair lie in one pack. Every rank gets the same number of packs, with about as many tokens in
    the same place; one for which there is nothing left repeats the shortest rollout as a padding pack.
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
        turn_count=sum(1 + int(np.count_nonzero(np.diff(own))) for own in turns),
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
