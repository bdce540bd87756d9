"""The search tree of one task: its nodes are turns, and what an episode does at each is decided by an upper bound.

The LOOP paper's DPO-MCTS (C.4) is Agent Q (arXiv 2408.07199) without its critic: a node is chosen by UCB alone, two
turns are sampled there, an episode is played to its end, and its return is backed up. Here all turns of an episode
enter the tree, and a node's second turn is sampled when the search comes back to it: a turn without an episode behind
it would have no Q. Two samples that are equal are one node.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tasks.core.config.collection import TreeConfig
from tasks.core.interfaces.engine import Generation
from tasks.core.interfaces.world import WorldFault


@dataclass
class Node:
    """A turn and the state to which it leads; the root is the opening."""

    number: int
    """In the order in which the tree's nodes were first reached; the root is 0."""
    ids: tuple[int, ...] = ()
    """What stays of the turn in the conversation: by this, two samples are equal."""
    turn: Generation | None = None
    """The turn as it was sampled, so that it can be played again."""
    reply: tuple[int, ...] | None = None
    """Ids between this turn and the next; None where the episode was over."""
    ended: bool = False
    """Whether an episode can go no further."""
    samples: int = 0
    """Turns that were sampled here, equal ones too."""
    visits: int = 0
    total: float = 0.0
    """Sum of the returns of the episodes that came through."""
    children: list["Node"] = field(default_factory=list)

    @property
    def q(self) -> float:
        """Mean return of the episodes that came through."""
        return self.total / self.visits

    def child(self, ids: Sequence[int]) -> "Node | None":
        """The turn with these ids that was sampled here before."""
        return next((child for child in self.children if child.ids == tuple(ids)), None)


def upper_bound(q: float, visits: int, parent_visits: int, exploration: float) -> float:
    """Q + c sqrt(ln N / n): UCB1 (Auer et al. 2002; Kocsis and Szepesvari 2006) of a child with n of its parent's N."""
    return q + exploration * math.sqrt(math.log(parent_visits) / visits)


def is_exhausted(node: Node, candidates: int) -> bool:
    """Whether every candidate of every turn from here on was tried."""
    if node.ended:
        return True
    return node.samples >= candidates and all(is_exhausted(child, candidates) for child in node.children)


def choice(node: Node, config: TreeConfig) -> Node | None:
    """The child with which an episode goes on; None: a turn is to be sampled.

    Of the children that still lead to something untried (of all, where a repeated sample led to where none does) it is
    the one with the highest bound, the earlier of equals.
    """
    if node.ended or node.samples < config.candidates:
        return None
    untried = [child for child in node.children if not is_exhausted(child, config.candidates)]
    return max(
        untried or node.children,
        key=lambda child: upper_bound(child.q, child.visits, node.visits, config.exploration),
    )


class SearchTree:
    """A tree that grows by one `Walk` at a time."""

    def __init__(self, config: TreeConfig) -> None:
        self.config, self.root, self._size = config, Node(0), 1

    @property
    def is_exhausted(self) -> bool:
        """Whether another simulation could find nothing new."""
        return is_exhausted(self.root, self.config.candidates)

    def added(self, parent: Node, ids: tuple[int, ...], turn: Generation) -> Node:
        """A new child of `parent`."""
        child = Node(self._size, ids, turn)
        self._size += 1
        parent.children.append(child)
        return child


@dataclass(frozen=True)
class _Move:
    ids: tuple[int, ...]
    turn: Generation
    sampled: bool


class Walk:
    """One simulation on its way. The tree stays as it is until `back_up`, so that a void one leaves no trace."""

    def __init__(self, tree: SearchTree) -> None:
        self._tree = tree
        self._node: Node | None = tree.root
        """Where it is; None beyond the tree."""
        self._moves: list[_Move] = []
        self._replies: list[tuple[int, ...] | None] = []

    def arrive(self, reply: tuple[int, ...] | None) -> None:
        """Take note of the ids with which the conversation goes on here; None: the episode is over.

        Raises WorldFault when the world said something else after the same turns: then no state can be come back to.
        """
        if self._node is not None and self._node.visits and self._node.reply != reply:
            raise WorldFault(f"the same {len(self._moves)} turns have led to another state than before")
        self._replies.append(reply)

    def choice(self) -> Generation | None:
        """The turn to play again; None: one is to be sampled."""
        chosen = None if self._node is None else choice(self._node, self._tree.config)
        return None if chosen is None else chosen.turn

    def go(self, turn: Generation, ids: tuple[int, ...], *, sampled: bool) -> None:
        """Go on with a turn, of which `ids` stay in the conversation."""
        self._moves.append(_Move(ids, turn, sampled))
        self._node = None if self._node is None else self._node.child(ids)

    def back_up(self, episode_return: float) -> list[int]:
        """Enter the whole walk and its return into the tree. Returns [turns] the node to which each turn led."""
        node, path = self._tree.root, [self._tree.root]
        for move in self._moves:
            node.samples += move.sampled
            node = node.child(move.ids) or self._tree.added(node, move.ids, move.turn)
            path.append(node)
        for node, reply in zip(path, self._replies, strict=True):
            node.visits += 1
            node.total += episode_return
            node.reply = reply
        path[-1].ended = True
        return [node.number for node in path[1:]]
