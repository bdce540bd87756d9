"""Trees searched side by side with a small policy in the counting game."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from tasks.core.config.collection import AgentLimits, TreeConfig
from tasks.core.engines.in_process.engine import TransformersEngine
from tasks.core.interfaces.world import Observation
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.seeding import derive_seed
from tasks.rollout_collection.collection_stats import CollectionStats
from tasks.rollout_collection.play_settings import PlaySettings
from tasks.rollout_collection.playing import play_rollouts
from tasks.tree_search.searching import Forest, simulation
from tests.rollout_collection.conftest import Count, CountingGame

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
        forest = Forest(TreeConfig(simulations=SIMULATIONS))
        planned = [simulation(task, derive_seed(seed, task.task_id), 0) for task in world.tasks("train")]
        rows = play_rollouts(
            world,
            engine,
            chat,
            planned,
            replace(settings, **{"limits": SHORT} | changes),
            policy=None,
            stats=stats,
            play=forest.play,
            follow_up=forest.follow_up,
        )
        assert world.open_now == 0
        return rows

    return run


def shared(first: Row, second: Row) -> int:
    """Tokens up to the end of the last turn that two simulations of one tree have in common."""
    common = sum(a == b for a, b in zip(first["tree_nodes"], second["tree_nodes"], strict=False))
    return max((place + 1 for place, turn in enumerate(first["turn_index"]) if 0 <= turn < common), default=0)


def test_simulations_of_a_tree_share_what_was_sampled(search: Search, game: type[CountingGame]) -> None:
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
    # What was replayed was not asked for:
    assert stats.generated_tokens < sum(sum(row["policy_mask"]) for row in rows)


def test_the_same_seed_searches_the_same_trees(search: Search, game: type[CountingGame]) -> None:
    assert search(game(3)) == search(game(3))
    assert search(game(3), seed=2) != search(game(3))


def test_one_tree_does_not_depend_on_those_beside_it(search: Search, game: type[CountingGame]) -> None:
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
    """Says another thing at every opening of an episode."""

    def open(self, task_id: str, seed: int) -> Count:
        episode, number = super().open(task_id, seed), next(_OPENINGS)
        step = episode.step

        def varied(text: str) -> Observation:
            return replace(step(text), text=f"opening {number}")

        episode.step = varied  # type: ignore[method-assign]
        return episode


_OPENINGS = count()


def test_a_tree_ends_where_its_world_does_not_repeat_itself(search: Search) -> None:
    """The root's two candidates need no way back; the third simulation does, unless it ends at once."""
    rows = search(Forgetful(3))
    void = {row["task_id"]: row["rollout_index"] for row in rows if row["end_reason"] == "world_fault"}
    last = {row["task_id"]: row["rollout_index"] for row in rows}
    assert void and all(index >= 2 and index == last[task] for task, index in void.items())


def test_a_full_context_ends_a_path(search: Search, short_engine: TransformersEngine) -> None:
    limits = AgentLimits(max_turns=4, max_tokens_per_turn=20, max_observation_tokens=40)
    rows = search(CountingGame(3), engine=short_engine, limits=limits)
    assert "context_limit" in {row["end_reason"] for row in rows}
    assert all(len(row["tree_nodes"]) == len(row["turns"]) for row in rows)
