"""The contexts of the turns of a recorded rollout, where the chat template leaves out the thoughts of earlier turns.

A rollout holds every token once, in the order in which it came. `thought_dropped` marks the thoughts that were left
out, with the template's own text around them. A turn saw all tokens before it except the marked ones of earlier turns;
those between the turn before it and itself, such as the opening of its own thought, it did see.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int64]


class TurnSequence(NamedTuple):
    """One context with the turns that were sampled in it, as positions of the rollout's tokens."""

    positions: Positions
    """[L] rising"""
    sampled: NDArray[np.bool_]
    """[L] the tokens of those turns"""


def seen_by(turn: int, turn_index: NDArray[np.int32], dropped: NDArray[np.bool_]) -> Positions:
    """Return the positions [L] that a turn saw, up to its own last token.

    turn_index [T]: a token's turn, or -1 where the policy did not sample it. dropped [T]: see the module.
    """
    end = int(np.flatnonzero(turn_index == turn)[-1]) + 1
    earlier = np.flatnonzero((turn_index[:end] >= 0) & (turn_index[:end] < turn))
    since = int(earlier[-1]) + 1 if len(earlier) else 0
    positions = np.arange(end)
    return positions[~dropped[:end] | (positions >= since)]


def turn_sequences(turn_index: NDArray[np.int32], dropped: NDArray[np.bool_]) -> list[TurnSequence]:
    """Return the fewest sequences in which each turn follows exactly what it saw, and is sampled once.

    A turn that saw all of the sequence before it continues that sequence: a rollout without dropped thoughts is one.
    """
    sequences: list[tuple[int, Positions]] = []
    for turn in np.unique(turn_index[turn_index >= 0]).tolist():
        seen = seen_by(turn, turn_index, dropped)
        first = turn
        if sequences and np.array_equal(seen[: len(sequences[-1][1])], sequences[-1][1]):
            first, _ = sequences.pop()
        sequences.append((first, seen))
    return [TurnSequence(seen, turn_index[seen] >= first) for first, seen in sequences]
