"""Pairs of turns from searched trees: two that were sampled at one node, after the same ids, and what came of each.

A tree is read from its rollouts alone: `rows` are those of one tree in a table, whose `paths` [N][turns] are the nodes
to which their turns led; `turns` [N][turns] what these turns say; `returns` [N].
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tasks.core.advantages.estimators import Floats
from tasks.core.spread import ROUNDING

ROOT = 0
"""The node from which every path starts."""


@dataclass(frozen=True)
class Candidate:
    """A turn that was sampled at a node."""

    row: int
    """The first rollout that played it."""
    turn: int
    """Which of that rollout's turns it is."""
    q: float
    """Mean return of the rollouts that went on with it."""


@dataclass(frozen=True)
class TurnPair:
    """The best and the worst turn of a node: of equals the earliest is the better one, the latest the worse."""

    better: Candidate
    worse: Candidate

    @property
    def gap(self) -> float:
        """The difference of their Q, never negative."""
        return self.better.q - self.worse.q


def turn_pairs(
    rows: Sequence[int], paths: Sequence[Sequence[int]], turns: Sequence[Sequence[Hashable]], returns: Floats
) -> list[TurnPair]:
    """One pair for every node with two different turns, in the order of the nodes."""
    siblings: dict[int, list[Candidate]] = {}
    for (parent, _), found in sorted(_candidates(rows, paths, turns, returns).items(), key=lambda item: item[0]):
        siblings.setdefault(parent, []).append(found)
    return [
        TurnPair(max(found, key=_order), min(reversed(found), key=_order))
        for found in siblings.values()
        if len(found) > 1
    ]


def over_gap(pairs: Sequence[TurnPair], gap: float) -> list[TurnPair]:
    """Those whose Q differ by more than `gap`."""
    return [pair for pair in pairs if pair.gap > gap + ROUNDING]


def _order(candidate: Candidate) -> float:
    return round(candidate.q, 9)


def _candidates(
    rows: Sequence[int], paths: Sequence[Sequence[int]], turns: Sequence[Sequence[Hashable]], returns: Floats
) -> dict[tuple[int, int], Candidate]:
    """Candidates by (node of the turn, first node to which it led: in a world of chance there are others)."""
    said: dict[int, Hashable] = {}
    led_to: dict[tuple[int, Hashable], int] = {}
    first: dict[tuple[int, int], tuple[int, int]] = {}
    earned: dict[tuple[int, int], list[float]] = {}
    for row in rows:
        for turn, (parent, node) in enumerate(pairwise((ROOT, *paths[row]))):
            # By the node first: what stays of two samples may be equal where the samples themselves are not.
            own = said.setdefault(node, turns[row][turn])
            edge = parent, led_to.setdefault((parent, own), node)
            first.setdefault(edge, (row, turn))
            earned.setdefault(edge, []).append(float(returns[row]))
    return {edge: Candidate(*place, sum(earned[edge]) / len(earned[edge])) for edge, place in first.items()}
