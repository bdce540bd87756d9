"""The search tree of one task: its nodes are turns, and an upper bound decides what an episode does at each.

In a world of chance a turn leads to several states, each a node of its own; Q is the turn's, the mean over all of them.
The LOOP paper's DPO-MCTS (C.4) is Agent Q (arXiv 2408.07199) without its critic: UCB alone chooses a node, two turns
are sampled there, an episode is played to its end, and its return is backed up. Here all turns of an episode enter the
tree, and a node's second turn is sampled when the search returns to the node: a turn without an episode behind it would
have no Q. Two samples that are equal are one node.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tasks.core.config.collection import TreeConfig
from tasks.core.interfaces.engine import Generation
from tasks.core.interfaces.world import WorldFault

EXPLORATION = math.sqrt(2)
"""Weight of the confidence bound's width, where Q weighs 1: UCB1's own for returns in [0, 1]. The LOOP paper states
none."""


@dataclass
class Node:
    """A turn and a state to which it leads; the root is the opening."""

    number: int
    """Number in the order in which the tree's nodes were first reached; the root is 0."""
    ids: tuple[int, ...] = ()
    """The part of the turn that stays in the conversation; two samples are equal if these ids are."""
    turn: Generation | None = None
    """The turn as it was sampled, so that it can be played again."""
    reply: Sequence[object] | None = None
    """The conversation up to the next turn; None where the episode was over."""
    ended: bool = False
    """Whether the episode ends here."""
    samples: int = 0
    """Number of turns sampled here, equal turns included."""
    visits: int = 0
    total: float = 0.0
    """Sum of the returns of the episodes that passed here."""
    children: list["Node"] = field(default_factory=list)

    @property
    def q(self) -> float:
        """Return the mean return of the episodes that passed here."""
        return self.total / self.visits

    @property
    def turns(self) -> list[list["Node"]]:
        """Return the nodes to which each turn sampled here has led: several only in a world of chance."""
        by_turn: dict[tuple[int, ...], list[Node]] = {}
        for child in self.children:
            by_turn.setdefault(child.ids, []).append(child)
        return list(by_turn.values())

    def outcomes(self, ids: Sequence[int]) -> list["Node"]:
        """Return the nodes to which the turn with these ids has led from here."""
        return [child for child in self.children if child.ids == tuple(ids)]


def upper_bound(q: float, visits: int, parent_visits: int) -> float:
    """Return Q + c sqrt(ln N / n): UCB1 (Auer et al. 2002; Kocsis and Szepesvari 2006), with n of N visits."""
    return q + EXPLORATION * math.sqrt(math.log(parent_visits) / visits)


def is_exhausted(node: Node, candidates: int) -> bool:
    """Return whether every candidate of every turn from here on was tried."""
    if node.ended:
        return True
    return node.samples >= candidates and all(is_exhausted(child, candidates) for child in node.children)


def choice(node: Node, config: TreeConfig, *, of_chance: bool = False) -> Node | None:
    """Return the child whose turn the episode plays next; None: sample a turn.

    The child has the highest bound, the earlier of equals, among the turns that still lead to something untried. It is
    chosen among all turns where a repeated sample led to a node with nothing untried, and in a world of chance, where
    another try improves any turn's Q.
    """
    if node.ended or node.samples < config.candidates:
        return None
    untried = [turn for turn in node.turns if of_chance or not is_exhausted(turn[0], config.candidates)]
    return max(untried or node.turns, key=lambda turn: _bound(turn, node.visits))[0]


def _bound(turn: Sequence[Node], parent_visits: int) -> float:
    visits = sum(outcome.visits for outcome in turn)
    return upper_bound(sum(outcome.total for outcome in turn) / visits, visits, parent_visits)


class SearchTree:
    """A tree that grows by one `Walk` at a time."""

    def __init__(self, config: TreeConfig, *, of_chance: bool = False) -> None:
        self.config, self.of_chance, self.root, self._size = config, of_chance, Node(0), 1

    @property
    def is_exhausted(self) -> bool:
        """Return whether another simulation could find nothing new."""
        return not self.of_chance and is_exhausted(self.root, self.config.candidates)

    def added(self, parent: Node, move: "Move", reply: Sequence[object] | None) -> Node:
        """Add a new child to `parent` and return it."""
        child = Node(self._size, move.ids, move.turn, reply)
        self._size += 1
        parent.children.append(child)
        return child


@dataclass(frozen=True)
class Move:
    """A turn of a simulation, and whether it was sampled there or played again."""

    ids: tuple[int, ...]
    turn: Generation
    sampled: bool


class Walk:
    """One simulation in progress.

    The tree stays as it is until `back_up`, so that a void simulation leaves no trace.
    """

    def __init__(self, tree: SearchTree) -> None:
        self._tree = tree
        self._node: Node | None = None
        """The present node; None beyond the tree."""
        self._known = [tree.root]
        """Nodes of the tree to which the last turn may have led."""
        self._moves: list[Move] = []
        self._replies: list[Sequence[object] | None] = []

    def arrive(self, reply: Sequence[object] | None) -> None:
        """Record the conversation as it stands here; None: the episode is over.

        Raises WorldFault when a world without chance gives another text after the same turns, or any world at the
        opening: then the search cannot return to a state.
        """
        known = [node for node in self._known if node.visits]
        self._node = next((node for node in known if node.reply == reply), None)
        if known and self._node is None and not (self._tree.of_chance and self._moves):
            raise WorldFault(f"the same {len(self._moves)} turns have led to another state than before")
        self._replies.append(reply)

    def choice(self) -> Generation | None:
        """Return the turn to play again; None: sample a turn."""
        tree, node = self._tree, self._node
        chosen = None if node is None else choice(node, tree.config, of_chance=tree.of_chance)
        return None if chosen is None else chosen.turn

    def go(self, turn: Generation, ids: tuple[int, ...], *, sampled: bool) -> None:
        """Move on with a turn, of which `ids` stay in the conversation."""
        self._moves.append(Move(ids, turn, sampled))
        self._known = [] if self._node is None else self._node.outcomes(ids)

    def back_up(self, episode_return: float) -> list[int]:
        """Enter the whole walk and its return into the tree. Return the node [turns] to which each turn led."""
        node, path = self._tree.root, [self._tree.root]
        node.reply, *replies = self._replies
        for move, reply in zip(self._moves, replies, strict=True):
            node.samples += move.sampled
            reached = (child for child in node.outcomes(move.ids) if child.reply == reply)
            node = next(reached, None) or self._tree.added(node, move, reply)
            path.append(node)
        for node in path:
            node.visits += 1
            node.total += episode_return
        path[-1].ended = True
        return [node.number for node in path[1:]]
