"""The shapes of the engine's passes, which make a conversation's bits independent of its company.

A matrix product may sum in another order for another number of rows, and so may attention for another number of keys.
Libraries do so for small and for odd shapes: MKL takes another kernel below four rows. So rows and keys are padded to
whole tiles, and each id is a query of its own: one that comes in a long prompt is attended to as one that was sampled.
"""

from typing import NamedTuple


class Tiles(NamedTuple):
    """Shapes of the passes. Each field that differs from `FREE` costs a little time."""

    rows: int
    """A pass has a multiple of this many ids."""
    keys: int
    """Attention reads a multiple of this many positions of the cache."""
    query_alone: bool
    """Each id is attended to by itself; else a prompt's ids all at once."""
    head_alone: bool = False
    """Query heads that share keys are attended to one after another."""

    def whole_rows(self, count: int) -> int:
        """Return `count` ids, rounded up to whole tiles."""
        return -(-count // self.rows) * self.rows

    def whole_keys(self, count: int) -> int:
        """Return `count` positions, rounded up to whole tiles."""
        return -(-count // self.keys) * self.keys


FREE = Tiles(1, 1, query_alone=False)
"""No promise: the fastest passes."""
LADDER = (
    Tiles(16, 64, query_alone=True),
    Tiles(16, 64, query_alone=True, head_alone=True),
    Tiles(64, 512, query_alone=True, head_alone=True),
)
"""Shapes to try, the fastest first."""
