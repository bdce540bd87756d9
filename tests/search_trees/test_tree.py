"""The mathematics of the tree search: bounds, choices, backed up returns, and exhausted nodes."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.core.config.collection import TreeConfig
from tasks.core.interfaces.engine import Generation
from tasks.core.interfaces.world import WorldFault
from tasks.pair_turns import over_gap, turn_pairs
from tasks.search_trees.tree import Node, SearchTree, Walk, choice, is_exhausted, upper_bound

CONFIG = TreeConfig()


def generation(*ids: int) -> Generation:
    return Generation("t#0", ids, (0.0,) * len(ids), "stop")


def play(tree: SearchTree, samples: list[int], episode_return: float, turns: int) -> tuple[list[int], list[int]]:
    """Play a simulation of `turns` turns of one id each, sampled from `samples` (used up). Return ids and nodes."""
    walk, ids = Walk(tree), []
    for _ in range(turns):
        walk.arrive((0,))
        chosen = walk.choice()
        turn = chosen or generation(samples.pop(0))
        ids.append(turn.token_ids[0])
        walk.go(turn, turn.token_ids, sampled=chosen is None)
    walk.arrive(None)
    return ids, walk.back_up(episode_return)


def test_the_bound_by_hand() -> None:
    assert upper_bound(0.5, 2, 8) == pytest.approx(0.5 + math.sqrt(2 * math.log(8) / 2))
    assert upper_bound(0.25, 1, 1) == 0.25  # ln 1 = 0


def test_four_simulations_by_hand() -> None:
    """Simulate two turns each time. The root's two candidates come first; then the bound prefers what earned more."""
    tree = SearchTree(CONFIG)
    assert play(tree, [7, 7], 0.0, 2) == ([7, 7], [1, 2])
    assert play(tree, [8, 7], 1.0, 2) == ([8, 7], [3, 4])
    # Q(7) = 0, Q(8) = 1, both visited once: the search continues with 8, where one candidate is not sampled yet.
    assert play(tree, [9], 0.5, 2) == ([8, 9], [3, 5])
    # Both of 8's candidates have ended, so only 7 leads to something new, whatever it earned.
    assert is_exhausted(tree.root.children[1], candidates=2)
    assert play(tree, [9], 0.25, 2) == ([7, 9], [1, 6])
    assert tree.is_exhausted
    seven, eight = tree.root.children
    assert (tree.root.q, seven.q, eight.q) == (1.75 / 4, 0.125, 0.75)
    assert [child.q for child in (*seven.children, *eight.children)] == [0.0, 0.25, 1.0, 0.5]


def test_the_bound_weighs_visits_against_returns() -> None:
    """0.6 + 0.758 against Q + 1.517: seldom visited wins from Q = -0.16 on."""
    for q, wins in ((-0.2, False), (0.4, True)):
        children = [Node(1, (1,), visits=8, total=4.8), Node(2, (2,), visits=2, total=2 * q)]
        often, seldom = children
        root = Node(0, samples=2, visits=10, children=children)
        assert choice(root, CONFIG) is (seldom if wins else often)
    seldom.ended = True
    assert choice(root, CONFIG) is often


def test_equal_samples_are_one_node_and_both_count() -> None:
    tree = SearchTree(CONFIG)
    play(tree, [7, 1], 1.0, 2)
    assert play(tree, [7, 2], 0.0, 2) == ([7, 2], [1, 3])
    (only,) = tree.root.children
    assert (tree.root.samples, only.visits, only.q) == (2, 2, 0.5)
    assert tree.is_exhausted


def test_a_repeated_sample_of_an_exhausted_turn_counts_once_more() -> None:
    tree = SearchTree(CONFIG)
    play(tree, [7], 1.0, 1)
    assert play(tree, [7], 1.0, 1) == ([7], [1])
    assert tree.root.children[0].visits == 2 and tree.is_exhausted


def test_luck_makes_several_nodes_of_one_turn_and_its_q_is_over_all_of_them() -> None:
    """The root's only candidates are 7, which ends at once or continues, and 8, which ends."""
    tree, rows = SearchTree(CONFIG, of_chance=True), []
    for sampled, replies, earned in (
        ([7], [None], 0.0),
        ([8], [None], 0.25),
        ([], [None], 0.25),  # of 7 (Q 0) and 8 (Q 0.25) the second is tried again, though it has ended
        ([9], [(1,), None], 1.0),  # 7: Q 0 in one of three, 8: Q 0.25 in two; luck leads 7 to a new state
    ):
        walk, left = Walk(tree), list(sampled)
        walk.arrive((0,))
        for reply in replies:
            chosen = walk.choice()
            turn = chosen or generation(left.pop(0))
            walk.go(turn, turn.token_ids, sampled=chosen is None)
            walk.arrive(reply)
        rows.append((walk.back_up(earned), earned))
    assert [path for path, _ in rows] == [[1], [2], [2], [3, 4]]
    assert [len(turn) for turn in tree.root.turns] == [2, 1] and not tree.is_exhausted
    said = [["7"], ["8"], ["8"], ["7", "9"]]
    (pair,) = turn_pairs(range(4), [path for path, _ in rows], said, [earned for _, earned in rows])
    assert (pair.better.row, pair.better.q, pair.worse.row, pair.worse.q) == (0, 0.5, 1, 0.25)


def test_the_opening_is_the_same_in_a_world_of_chance_too() -> None:
    tree = SearchTree(CONFIG, of_chance=True)
    play(tree, [7], 1.0, 1)
    with pytest.raises(WorldFault, match="the same 0 turns"):
        Walk(tree).arrive((9,))


def test_a_void_simulation_leaves_no_trace() -> None:
    tree = SearchTree(CONFIG)
    walk = Walk(tree)
    walk.arrive((0,))
    walk.go(generation(7), (7,), sampled=True)
    assert (tree.root.samples, tree.root.visits, tree.root.children) == (0, 0, [])


@pytest.mark.parametrize("reply", [(1,), None])
def test_another_state_after_the_same_turns_is_a_fault(reply: tuple[int, ...] | None) -> None:
    tree = SearchTree(CONFIG)
    for first in (7, 8):
        play(tree, [first, 1], 1.0, 2)
    walk = Walk(tree)
    walk.arrive((0,))
    chosen = walk.choice()
    assert chosen is not None
    walk.go(chosen, chosen.token_ids, sampled=False)
    with pytest.raises(WorldFault, match="the same 1 turns have led to another state"):
        walk.arrive(reply)


@given(data=st.data(), candidates=st.integers(2, 3), depth=st.integers(1, 3), simulations=st.integers(1, 30))
def test_a_trees_figures_follow_from_its_simulations(
    data: st.DataObject, candidates: int, depth: int, simulations: int
) -> None:
    """Q is the mean over the paths, and visits add up; no node has more children than candidates; equal turns are one
    node; every node with two children is a pair.
    """
    tree = SearchTree(TreeConfig(candidates=candidates))
    drawn: list[tuple[list[int], list[int], float]] = []
    while len(drawn) < simulations and not tree.is_exhausted:
        samples = data.draw(st.lists(st.integers(0, 2), min_size=depth, max_size=depth))
        episode_return = data.draw(st.sampled_from([0.0, 0.5, 1.0]))
        drawn.append((*play(tree, samples, episode_return, depth), episode_return))
    paths, returns = [path for _, path, _ in drawn], [earned for *_, earned in drawn]
    assert tree.root.visits == len(drawn)
    assert len({tuple(ids) for ids, _, _ in drawn}) == len({tuple(path) for path in paths})
    waiting = [tree.root]
    while waiting:
        node = waiting.pop()
        waiting += node.children
        through = [earned for path, earned in zip(paths, returns, strict=True) if node.number in (0, *path)]
        assert (node.visits, node.q) == (len(through), pytest.approx(sum(through) / len(through)))
        assert len(node.children) <= node.samples <= candidates
        assert sum(child.visits for child in node.children) == (0 if node.ended else node.visits)
        pairs = turn_pairs(range(len(paths)), paths, paths, returns)
        values = sorted(child.q for child in node.children)
        if len(values) > 1:
            assert any((p.better.q, p.worse.q) == (pytest.approx(values[-1]), pytest.approx(values[0])) for p in pairs)


@given(st.lists(st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=3), st.sampled_from([0.0, 0.4, 1.0]))))
def test_pairs_share_what_came_before_them(episodes: list[tuple[list[int], float]]) -> None:
    """The trees are written by hand: the turns that lead to a node name it."""
    numbers: dict[tuple[int, ...], int] = {}
    paths = [
        [numbers.setdefault(tuple(ids[: turn + 1]), len(numbers) + 1) for turn in range(len(ids))]
        for ids, _ in episodes
    ]
    pairs = turn_pairs(range(len(paths)), paths, paths, [earned for _, earned in episodes])
    by_prefix = Counter(prefix[:-1] for prefix in numbers)
    assert len(pairs) == sum(count > 1 for count in by_prefix.values())
    for pair in pairs:
        (better, _), (worse, _) = episodes[pair.better.row], episodes[pair.worse.row]
        assert pair.better.turn == pair.worse.turn and pair.gap >= 0
        assert better[: pair.better.turn] == worse[: pair.worse.turn]
        assert better[pair.better.turn] != worse[pair.worse.turn]
    assert over_gap(pairs, 1.0) == [] and set(map(id, over_gap(pairs, 0.1))) <= set(map(id, pairs))


def test_pairs_by_hand() -> None:
    """Node 1 has Q = (1 + 0.5) / 2, node 4 has 0.25; below node 1, nodes 2 and 3 have 1 and 0.5."""
    paths = [[1, 2], [1, 3], [4]]
    found = turn_pairs([0, 1, 2], paths, paths, [1.0, 0.5, 0.25])
    assert [(p.better.row, p.better.turn, p.better.q, p.worse.row, p.worse.turn, p.worse.q) for p in found] == [
        (0, 0, 0.75, 2, 0, 0.25),
        (0, 1, 1.0, 1, 1, 0.5),
    ]
    assert [pair.gap for pair in over_gap(found, 0.5)] == []  # more than the gap, not equal to it
    assert len(over_gap(found, 0.49)) == 2
