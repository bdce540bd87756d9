"""Rollouts as the learner sees them, and packs of whole rollouts side by side in one row.

A rollout is token ids, which of them the policy sampled in which turn, and advantages. A pack's row ends with the last
of its rollouts, so no position is padding. A row that is too long for one pass of the model goes through it in several.
Sequences that begin with the same prompt can share its positions (`update.share_prefixes`): what they begin with lies
in the row once, and the rest of each is behind it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.core.config.update import PAIRED, UpdateConfig
from tasks.core.learner.distributed import SINGLE, ProcessGroup
from tasks.core.records.schemas import SEQUENCES, TOKEN_COLUMNS
from tasks.core.seeding import derive_seed


@dataclass(frozen=True)
class Rollout:
    """One rollout of T tokens, P of them sampled by the policy.

    It is a list of sequences, one after the other, of which a later one repeats what it still sees of the history.
    """

    token_ids: NDArray[np.int64]
    """[T]"""
    policy_positions: NDArray[np.int64]
    """[P] positions of the policy's tokens, rising, each at least 1."""
    turns: NDArray[np.int64]
    """[P] assistant turn of each policy token."""
    engine_logprobs: NDArray[np.float32]
    """[P] natural log-probs at the sampling temperature, as the engine reported them: those of the behaviour policy."""
    advantage: float
    """The advantage of the whole rollout."""
    name: str = ""
    """Task and rollout index, for error messages."""
    turn_advantages: NDArray[np.float64] | None = None
    """[turns] the advantage of each assistant turn, in place of the rollout's."""
    turn_rewards: NDArray[np.float64] | None = None
    """[turns] the world's reward for each assistant turn, in its own unit, where it gives rewards by turn."""
    pair: int | None = None
    """Number of the rollout's pair. In a pair, the rollout of positive advantage is better than that of negative."""
    begins: tuple[int, ...] = (0,)
    """The position at which each sequence begins. No token sees those of another sequence."""

    @property
    def token_advantages(self) -> NDArray[np.float32]:
        """Return the advantage [P] of every policy token."""
        if self.turn_advantages is None:
            return np.full(len(self.policy_positions), self.advantage, dtype=np.float32)
        return self.turn_advantages[self.turns].astype(np.float32)

    @property
    def length(self) -> int:
        """Return how many tokens a forward pass needs: all before the last sampled token, the last to be predicted."""
        return int(self.policy_positions[-1])

    @property
    def lengths(self) -> list[int]:
        """Return how many tokens of each sequence a forward pass needs; their sum is `length`."""
        return [end - begin for begin, end in pairwise((*self.begins, self.length))]

    @property
    def prompts(self) -> list[NDArray[np.int64]]:
        """Return the ids of each sequence's prompt, but for its last token, which predicts the first sampled one."""
        sampled = self.policy_positions[np.searchsorted(self.policy_positions, self.begins)]
        return [self.token_ids[begin : end - 1] for begin, end in zip(self.begins, sampled, strict=True)]

    @property
    def sequence_tokens(self) -> list[int]:
        """Return how many tokens of each sequence the policy sampled; their sum is P."""
        before = np.searchsorted(self.policy_positions, self.begins).tolist()
        return [end - begin for begin, end in pairwise((*before, len(self.policy_positions)))]


def whole_rollout(ids: Sequence[int], prompt: int = 1) -> Rollout:
    """Return a rollout of one turn: all tokens behind the first `prompt` are the policy's."""
    count = len(ids) - prompt
    return Rollout(
        token_ids=np.array(ids, dtype=np.int64),
        policy_positions=np.arange(prompt, len(ids)),
        turns=np.zeros(count, dtype=np.int64),
        engine_logprobs=np.zeros(count, dtype=np.float32),
        advantage=0.0,
    )


def bundles(rollouts: Sequence[Rollout], chosen: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the rows `chosen` as bundles that go to one pack: a pair (better, worse) or a single row.

    Bundles are in the order in which their first rows come.
    """
    pairs: dict[int, list[int]] = {}
    for row in chosen:
        number = rollouts[row].pair
        pairs.setdefault(-1 - row if number is None else number, []).append(row)
    return [tuple(sorted(rows, key=lambda row: -rollouts[row].advantage)) for rows in pairs.values()]


_BY_TURN = ("turn_advantages", "turn_rewards")


def read_rollouts(batch: pa.Table) -> list[Rollout]:
    """Return the rows of a valid TRAINING_BATCH table, without those in which the policy sampled nothing."""
    rollouts: list[Rollout] = []
    cells = [_lists(batch[name]) for name in TOKEN_COLUMNS]
    nothing = [None] * batch.num_rows
    by_turn = [_lists(batch[name]) if name in batch.column_names else nothing for name in _BY_TURN]
    pairs = batch["pair"].to_pylist() if "pair" in batch.column_names else nothing
    plain = (batch[name].to_pylist() for name in ("advantage", "task_id", "rollout_index", SEQUENCES))
    for (ids, mask, turns, logprobs), (advantage, task, index, begins), (by_turns, rewards), pair in zip(
        zip(*cells, strict=True), zip(*plain, strict=True), zip(*by_turn, strict=True), pairs, strict=True
    ):
        positions = np.flatnonzero(mask)
        if len(positions):
            rollout = Rollout(
                token_ids=ids.astype(np.int64),
                policy_positions=positions,
                turns=turns[positions].astype(np.int64),
                engine_logprobs=logprobs[positions],
                advantage=advantage,
                name=f"rollout {index} of {task}",
                turn_advantages=by_turns,
                turn_rewards=rewards,
                pair=pair,
                begins=tuple(begins),
            )
            rollouts.append(rollout)
    return rollouts


def _lists(column: pa.ChunkedArray) -> Sequence[NDArray[np.generic]]:
    """Return the rows of a list column as arrays (no Python object per token)."""
    return [chunk[row].values.to_numpy(zero_copy_only=False) for chunk in column.chunks for row in range(len(chunk))]


def draw_minibatches(rollouts: Sequence[Rollout], config: UpdateConfig, seed: int) -> Iterator[list[int]]:
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


def require_pairs(rollouts: Sequence[Rollout], config: UpdateConfig) -> None:
    """Raise ValueError where the objective is made of pairs and the batch has none."""
    if config.objective in PAIRED and any(rollout.pair is None for rollout in rollouts):
        raise ValueError(f"update.objective: {config.objective}: the batch has no pairs; set advantages.pair_gap")


def first_epoch(minibatches: Sequence[Sequence[int]], rollouts: int) -> Sequence[Sequence[int]]:
    """Return the minibatches in whose packs a policy of lower precision computes the fixed values.

    A GPU's kernels add in another order for another shape, and bfloat16 rounds the difference up to importance weights
    that leave the clip range. The same pack gives the same bits: the first weights are 1, and through the first epoch
    only the policy's steps change them. Packs of later epochs hold other rollouts side by side, so this noise is back.
    """
    seen = np.cumsum([len(minibatch) for minibatch in minibatches])
    return minibatches[: int(np.searchsorted(seen, rollouts)) + 1]


@dataclass(frozen=True)
class Pass:
    """Sequences side by side in one row of T positions with P policy tokens, ready for one forward pass.

    A row consists of pieces: whole sequences, prompts that several sequences share, and what follows such a prompt.

    Tensors are on the policy's device; the counts are on the host, so that nothing waits for the device to count.
    """

    lengths: tuple[int, ...]
    """Positions of each piece. Attention stays inside it, and in the piece that it is behind."""
    behind: tuple[int, ...]
    """For each piece the one whose positions its own continue; -1: none."""
    sequence_tokens: list[int]
    """Policy tokens of each sequence."""
    input_ids: Tensor
    """[1, T] int64"""
    position_ids: Tensor
    """[1, T] int64, restarting at 0 with every sequence, and behind a shared prompt with every sequence's own part"""
    logit_positions: Tensor
    """[P] int64, the row's positions whose hidden states predict the policy tokens."""
    targets: Tensor
    """[P] int64, the ids of the policy tokens."""

    @property
    def longest(self) -> int:
        """Return the positions of the longest sequence."""
        return max(
            own + (self.lengths[at] if at >= 0 else 0) for own, at in zip(self.lengths, self.behind, strict=True)
        )


@dataclass(frozen=True)
class Pack(Pass):
    """R rollouts in one row."""

    rows: tuple[int, ...]
    """[R] the rollouts' indices in the batch, in the order in which they lie in the row."""
    pairs: tuple[tuple[int, int], ...]
    """(better, worse) of each pair of rollouts, as indices into `rows`; a pair lies in one pack."""
    policy_tokens: list[int]
    """[R] policy tokens of each rollout."""
    turn_count: int
    """Assistant turns of all rollouts."""
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
    pieces_by_pass: tuple[int, ...]
    """Pieces of each forward pass; 0 for a pass that only keeps its rank in step with the others."""

    def passes(self) -> list[Pass]:
        """Return the passes, in the row's order, of which most packs are one; those of padding repeat the last."""
        if len(self.pieces_by_pass) == 1:
            return [self]
        found: list[Pass] = []
        first, start, token = 0, 0, 0
        for count in self.pieces_by_pass:
            if not count:
                found.append(found[-1])
                continue
            lengths, tokens = self.lengths[first : first + count], self.sequence_tokens[first : first + count]
            positions, sampled = slice(start, start + sum(lengths)), slice(token, token + sum(tokens))
            found.append(
                Pass(
                    lengths=lengths,
                    behind=self.behind[first : first + count],
                    sequence_tokens=tokens,
                    input_ids=self.input_ids[:, positions],
                    position_ids=self.position_ids[:, positions],
                    logit_positions=self.logit_positions[sampled] - start,
                    targets=self.targets[sampled],
                )
            )
            first, start, token = first + count, positions.stop, sampled.stop
        return found


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


class Piece(NamedTuple):
    """The tokens start .. stop - 1 of a rollout, one after the other in a pack's row."""

    row: int
    start: int
    stop: int
    behind: int = -1
    """The piece, by its place in the row, whose tokens come before them; -1: none."""


def _pieces(parts: Sequence[Rollout], *, shared: bool) -> list[Piece]:
    """Return the pieces of a row: its sequences. If `shared`, those with equal `Rollout.prompts` have one in common."""
    whole = [
        Piece(row, begin, begin + length)
        for row, part in enumerate(parts)
        for begin, length in zip(part.begins, part.lengths, strict=True)
    ]
    if not shared:
        return whole
    prompts = [prompt for part in parts for prompt in part.prompts]
    keys = [prompt.tobytes() for prompt in prompts]
    uses = Counter(keys)
    pieces: list[Piece] = []
    places: dict[bytes, int] = {}
    for piece, prompt, key in zip(whole, prompts, keys, strict=True):
        if not key or uses[key] < 2:
            pieces.append(piece)
            continue
        first = piece.start + len(prompt)
        if key not in places:
            places[key] = len(pieces)
            pieces.append(Piece(piece.row, piece.start, first))
        pieces.append(Piece(piece.row, first, piece.stop, places[key]))
    return pieces


def _positions(pieces: Iterable[Piece]) -> int:
    return sum(piece.stop - piece.start for piece in pieces)


def _that_begin_alike(
    rollouts: Sequence[Rollout], together: Sequence[tuple[int, ...]], capacity: int
) -> list[list[tuple[int, ...]]]:
    """Return the bundles in lists of those that begin with the same prompt, as many as fit into a pack."""
    found: list[list[tuple[int, ...]]] = []
    latest: dict[bytes, int] = {}
    for bundle in together:
        prompt = rollouts[bundle[0]].prompts[0].tobytes()
        place = latest.get(prompt)
        if place is not None:
            members = chain.from_iterable([*found[place], bundle])
            if _positions(_pieces([rollouts[row] for row in members], shared=True)) <= capacity:
                found[place].append(bundle)
                continue
        latest[prompt] = len(found)
        found.append([bundle])
    return found


def pack_rollouts(
    rollouts: Sequence[Rollout],
    chosen: Sequence[int],
    capacity: int,
    device: torch.device,
    group: ProcessGroup = SINGLE,
    pass_tokens: int | None = None,
    *,
    share_prefixes: bool = False,
) -> list[Pack]:
    """Return this rank's packs of at most `capacity` positions; the packs of all ranks hold each `chosen` rollout once.

    The two rollouts of a pair lie in one pack. Every rank gets the same number of packs; packs of the same index have
    about equally many tokens. Where no rollout is left, a rank repeats the shortest as a padding pack. A pack that
    exceeds `pass_tokens` goes in passes of at most so many positions each, or one sequence, and in as many on every
    rank; None: in one. `share_prefixes`: rollouts with equal prompts lie in one pack, which holds the prompt once; a
    pack of several passes shares nothing.
    """
    bundled = bundles(rollouts, chosen)
    together = _that_begin_alike(rollouts, bundled, capacity) if share_prefixes else [[bundle] for bundle in bundled]

    def pieces_of(members: Sequence[tuple[int, ...]]) -> list[Piece]:
        parts = [rollouts[row] for row in chain.from_iterable(members)]
        pieces = _pieces(parts, shared=share_prefixes)
        fits = pass_tokens is None or _positions(pieces) <= pass_tokens
        return pieces if fits else _pieces(parts, shared=False)

    lengths = [_positions(pieces_of(members)) for members in together]
    bins = first_fit_decreasing(lengths, capacity) if group.size == 1 else spread(lengths, capacity, group.size)
    shortest = min(range(len(lengths)), key=lengths.__getitem__, default=0)
    filled = [[bundle for item in members or [shortest] for bundle in together[item]] for members in bins]
    rows = [pieces_of(members) for members in filled]
    passes = [_pieces_by_pass(pieces, pass_tokens) for pieces in rows]
    own = range(group.rank, len(bins), group.size)
    most = [max(map(len, passes[place - group.rank :][: group.size])) for place in own]
    return [
        _pack(rollouts, filled[place], rows[place], _padded(passes[place], count), device, is_padding=not bins[place])
        for place, count in zip(own, most, strict=True)
    ]


def _pieces_by_pass(pieces: Sequence[Piece], pass_tokens: int | None) -> tuple[int, ...]:
    """Return how many pieces each pass takes, in order: as many as fit, at least one."""
    if pass_tokens is None or _positions(pieces) <= pass_tokens:
        return (len(pieces),)
    counts: list[int] = []
    room = 0
    for length in (piece.stop - piece.start for piece in pieces):
        if counts and length <= room:
            counts[-1] += 1
        else:
            counts.append(1)
            room = pass_tokens
        room -= length
    return tuple(counts)


def _padded(counts: tuple[int, ...], passes: int) -> tuple[int, ...]:
    return counts + (0,) * (passes - len(counts))


def _pack(
    rollouts: Sequence[Rollout],
    members: Sequence[tuple[int, ...]],
    pieces: Sequence[Piece],
    pieces_by_pass: tuple[int, ...],
    device: torch.device,
    *,
    is_padding: bool,
) -> Pack:
    rows = tuple(chain.from_iterable(members))
    parts = [rollouts[index] for index in rows]
    lengths = [piece.stop - piece.start for piece in pieces]
    begins = [0 if piece.behind < 0 else lengths[piece.behind] for piece in pieces]
    places = [np.empty(len(part.token_ids), dtype=np.int64) for part in parts]
    for piece, end in zip(pieces, np.cumsum(lengths), strict=True):
        places[piece.row][piece.start : piece.stop] = np.arange(end - (piece.stop - piece.start), end)
    turns = [part.turns for part in parts]

    def tensor(*arrays: np.ndarray) -> Tensor:
        return torch.from_numpy(np.concatenate(arrays)).to(device)

    return Pack(
        rows=rows,
        pairs=tuple((rows.index(bundle[0]), rows.index(bundle[1])) for bundle in members if len(bundle) == 2),
        lengths=tuple(lengths),
        behind=tuple(piece.behind for piece in pieces),
        sequence_tokens=[count for part in parts for count in part.sequence_tokens],
        policy_tokens=[len(part.policy_positions) for part in parts],
        turn_count=sum(1 + int(np.count_nonzero(np.diff(rollout_turns))) for rollout_turns in turns),
        input_ids=tensor(*(parts[piece.row].token_ids[piece.start : piece.stop] for piece in pieces))[None],
        position_ids=tensor(*(np.arange(length) + begin for length, begin in zip(lengths, begins, strict=True)))[None],
        logit_positions=tensor(*(place[part.policy_positions - 1] for place, part in zip(places, parts, strict=True))),
        targets=tensor(*(part.token_ids[part.policy_positions] for part in parts)),
        rollout_ids=tensor(*(np.full(len(part.policy_positions), row) for row, part in enumerate(parts))),
        turns=tensor(*turns),
        advantages=tensor(*(part.token_advantages for part in parts)),
        behaviour_logprobs=tensor(*(part.engine_logprobs for part in parts)),
        is_padding=is_padding,
        pieces_by_pass=pieces_by_pass,
    )
