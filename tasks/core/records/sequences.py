"""The sequences of a recorded rollout: each is a context with the turns that were sampled in it.

Most rollouts are one sequence. Another begins where a turn did not see all of the one before it: its history was cut,
rewritten or forked, or a chat template left a thought out. What a later sequence repeats is context there, whoever
sampled it, so that each sampled token is trained once, with exactly what it saw.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]


def spans(begins: Sequence[int], count: int) -> list[slice]:
    """Return the place of each sequence among a rollout's `count` tokens."""
    return [slice(first, last) for first, last in pairwise((*begins, count))]


def parts(row: dict[str, Any]) -> Iterator[tuple[int, list[int]]]:
    """Yield a rollout's turns, and as turn -1 what stands between them, in order; history that is repeated, only once.

    `row` has the columns `token_ids`, `turn_index` and `sequence_begins`.
    """
    ids, turns = (np.asarray(row[name], dtype=np.int64) for name in ("token_ids", "turn_index"))
    places = spans(row["sequence_begins"], len(ids))
    for number, place in enumerate(places):
        start = place.start + _repeated(ids[place], [ids[earlier] for earlier in places[:number]])
        bounds = np.flatnonzero(np.diff(turns[start : place.stop])) + start + 1
        for first, last in pairwise((start, *bounds.tolist(), place.stop)):
            if first < last:
                yield int(turns[first]), ids[first:last].tolist()


def _repeated(ids: Ids, earlier: Sequence[Ids]) -> int:
    """Return how many first ids repeat an earlier sequence: its beginning, and behind a cut also its end."""
    begun, end = max(((_common(ids, other), other) for other in earlier), key=lambda found: found[0], default=(0, ids))
    rest = ids[begun:]
    ends = (
        (len(end) - at for at in np.flatnonzero(end == rest[0]).tolist() if at >= begun) if begun and len(rest) else ()
    )
    return begun + next((length for length in ends if np.array_equal(end[-length:], rest[:length])), 0)


def _common(one: Ids, other: Ids) -> int:
    """Return how many first ids are the same."""
    shorter = min(len(one), len(other))
    differ = np.flatnonzero(one[:shorter] != other[:shorter])
    return int(differ[0]) if len(differ) else shorter
