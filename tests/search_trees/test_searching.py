"""Trees searched side by side with a small policy in the counting game."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count, groupby, product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tasks.core.config.collection import AgentLimits, TreeConfig
from tasks.core.config.world import WorldSection
from tasks.core.engines.transformers.engine import TransformersEngine
from tasks.core.interfaces.world import Observation
from tasks.core.interfaces.world_kind import open_world, prepare_world_folder
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.recital import ScriptedEngine
from tasks.core.rollouts.planning import PlaySettings
from tasks.core.rollouts.playing import play_rollouts
from tasks.core.rollouts.scheduler import CollectionStats
from tasks.core.text_games.episode import answer_text
from tasks.pair_turns import turn_pairs
from tasks.search_trees import Forest, first_simulations
from tests.core.rollouts.conftest import Count, CountingGame

Row = dict[str, Any]
Search = Callable[..., list[Row]]
SIMULATIONS = 6
SHORT = AgentLimits(max_turns=3, max_tokens_per_turn=4, max_observation_tokens=40)


@pytest.fixture
def search(chat: ChatFormat, engine: TransformersEngine, settings: PlaySettings) -> Search:
    def run(
        world: CountingGame,
        seed: int = 1,
        engine: TransformersEngine = engine,
        stats: CollectionStats | None = None,
        **changes: Any,
    ) -> list[Row]:
        rows = play_rollouts(
            world,
            engine,
            chat,
            first_simulations(world, world.tasks("train"), seed),
            replace(settings, **{"limits": SHORT} | changes),
            policy=None,
            stats=stats,
            collector=Forest(TreeConfig(simulations=SIMULATIONS)),
        )
        assert world.open_now == 0
        return rows

    return run


def shared(first: Row, second: Row) -> int:
    """Return the tokens up to the end of the last turn that two simulations of one tree have in common."""
    common = sum(a == b for a, b in zip(first["tree_nodes"], second["tree_nodes"], strict=False))
    return max((position + 1 for position, turn in enumerate(first["turn_index"]) if 0 <= turn < common), default=0)


def test_simulations_of_a_tree_share_sampled_turns(search: Search, game: type[CountingGame]) -> None:
    stats = CollectionStats()
    rows = search(game(3), stats=stats)
    trees: dict[str, list[Row]] = {}
    for row in rows:
        trees.setdefault(row["task_id"], []).append(row)
    assert len(trees) == 3 and max(map(len, trees.values())) == SIMULATIONS
    for tree in trees.values():
        assert [row["rollout_index"] for row in tree] == list(range(len(tree)))
        for row in tree:
            assert len(row["tree_nodes"]) == len(row["turns"])
            for other in tree:
                length = shared(row, other)
                for column in ("token_ids", "policy_mask", "turn_index", "engine_logprobs"):
                    assert row[column][:length] == other[column][:length]
    # The search does not sample the replayed turns:
    assert stats.generated_tokens < sum(sum(row["policy_mask"]) for row in rows)


def test_the_same_seed_searches_the_same_trees(search: Search, game: type[CountingGame]) -> None:
    assert search(game(3)) == search(game(3))
    assert search(game(3), seed=2) != search(game(3))


def test_a_tree_does_not_depend_on_the_trees_searched_with_it(search: Search, game: type[CountingGame]) -> None:
    together, apart = search(game(3)), search(game(3), max_concurrent_episodes=1)
    assert [row["tree_nodes"] for row in together] == [row["tree_nodes"] for row in apart]
    assert [row["token_ids"] for row in together] == [row["token_ids"] for row in apart]


def test_a_world_fault_is_played_again_and_a_broken_world_ends_its_tree(
    search: Search, game: type[CountingGame]
) -> None:
    rows = search(game(3, unopenable=["t1"]))
    broken = [row for row in rows if row["task_id"] == "t1"]
    assert [(row["end_reason"], row["world_retries"]) for row in broken] == [("world_fault", 1)]
    assert {row["end_reason"] for row in rows if row["task_id"] != "t1"} <= {"completed", "turn_limit", "context_limit"}


class Forgetful(CountingGame):
    """A world that gives another text at every opening of an episode."""

    def open(self, task_id: str, seed: int) -> Count:
        episode, number = super().open(task_id, seed), next(_OPENINGS)
        step = episode.step

        def varied(text: str) -> Observation:
            return replace(step(text), text=f"opening {number}")

        episode.step = varied  # type: ignore[method-assign]
        return episode


_OPENINGS = count()


def test_a_tree_ends_where_its_world_does_not_repeat_itself(search: Search) -> None:
    """The root's two candidates need no return to a state; the third simulation does, unless it ends at once."""
    rows = search(Forgetful(3))
    void = {row["task_id"]: row["rollout_index"] for row in rows if row["end_reason"] == "world_fault"}
    last = {row["task_id"]: row["rollout_index"] for row in rows}
    assert void and all(index >= 2 and index == last[task] for task, index in void.items())


def test_a_full_context_ends_a_path(search: Search, short_engine: TransformersEngine) -> None:
    limits = AgentLimits(max_turns=4, max_tokens_per_turn=20, max_observation_tokens=40)
    rows = search(CountingGame(3), engine=short_engine, limits=limits)
    assert "context_limit" in {row["end_reason"] for row in rows}
    assert all(len(row["tree_nodes"]) == len(row["turns"]) for row in rows)


def played_by_chance(
    name: str, folder: Path, chat: ChatFormat, settings: PlaySettings, actions: Sequence[str], tasks: int
) -> list[Row]:
    """Trees of training tasks of a world of chance, by a policy that names actions at random."""
    prepare_world_folder(WorldSection.of(name), folder)
    world = open_world(WorldSection.of(name), folder)

    def script(task_id: str, seed: int) -> list[str]:
        return [answer_text([action], "x") for action in Random(seed).choices(actions, k=9)]

    return play_rollouts(
        world,
        ScriptedEngine("scripted", chat, script),
        chat,
        first_simulations(world, world.tasks("train")[:tasks], 1),
        replace(settings, limits=AgentLimits(max_turns=9, max_tokens_per_turn=99, max_observation_tokens=999)),
        policy=None,
        collector=Forest(TreeConfig(simulations=20)),
    )


def trees_of(rows: list[Row]) -> list[list[Row]]:
    return [list(tree) for _, tree in groupby(rows, key=lambda row: row["task_id"])]


def test_q_is_a_mean_over_luck(tmp_path: Path, chat: ChatFormat, settings: PlaySettings) -> None:
    """The risky arm pays 1 in a quarter of the pulls, the safe arm always 0.15.

    So a single draw prefers the safe arm in three of four trees.
    """
    risky, preferred = chat.turn_ids(answer_text(["Dragon"], "x")), []
    for tree in trees_of(played_by_chance("bandit", tmp_path / "world", chat, settings, ("Phoenix", "Dragon"), 48)):
        assert len(tree) == 20
        said = [
            [tuple(row["token_ids"][position] for position, is_sampled in enumerate(row["policy_mask"]) if is_sampled)]
            for row in tree
        ]
        pairs = turn_pairs(range(20), [row["tree_nodes"] for row in tree], said, [row["return"] for row in tree])
        preferred += [said[pair.better.row][0] == tuple(risky) for pair in pairs]
    assert len(preferred) > 16 and sum(preferred) > len(preferred) / 2


def test_states_of_a_world_of_chance_are_distinguished(
    tmp_path: Path, chat: ChatFormat, settings: PlaySettings
) -> None:
    moves = ("Left", "Right", "Up", "Down")
    rows = played_by_chance("frozen_lake", tmp_path / "world", chat, settings, moves, 3)
    assert {row["end_reason"] for row in rows} == {"completed"}
    assert rows == played_by_chance("frozen_lake", tmp_path / "again", chat, settings, moves, 3)
    for tree in trees_of(rows):
        first = Counter(row["tree_nodes"][0] for row in tree)
        assert len(tree) == 20 and len(first) > 2 and max(first.values()) > 2  # by two turns to more than two states
        for row, other in product(tree, tree):
            length = shared(row, other)
            assert row["token_ids"][:length] == other["token_ids"][:length]
