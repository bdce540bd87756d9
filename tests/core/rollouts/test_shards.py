from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tasks.core.config.collection import AgentLimits
from tasks.core.interfaces.world import Task
from tasks.core.rollouts.planning import PlaySettings, plan_rollouts
from tasks.core.rollouts.scheduler import CollectionStats, total
from tasks.core.rollouts.shards import Shard, divided


def whole(tasks: int, rollouts: int, live: int) -> Shard:
    named = [Task(f"t{index}", f"s{index // 3}", 1, "train", "Name letters.") for index in range(tasks)]
    settings = PlaySettings(1.0, AgentLimits(), max_concurrent_episodes=live, world_retries=0)
    return Shard(tuple(plan_rollouts(named, rollouts, seed=1)), settings, Path("policy"), "rollouts")


@given(tasks=st.integers(0, 12), rollouts=st.integers(1, 4), live=st.integers(1, 40), count=st.integers(1, 15))
def test_every_rollout_is_in_one_shard_beside_the_others_of_its_task(
    tasks: int, rollouts: int, live: int, count: int
) -> None:
    given_whole = whole(tasks, rollouts, live)
    shards = divided(given_whole, count)
    assert len(shards) == max(1, min(count, tasks))
    assert Counter(rollout.name for shard in shards for rollout in shard.rollouts) == Counter(
        rollout.name for rollout in given_whole.rollouts
    )
    homes = {(rollout.task.task_id, number) for number, shard in enumerate(shards) for rollout in shard.rollouts}
    assert len(homes) == tasks
    sizes = [len(shard) for shard in shards]
    assert max(sizes) - min(sizes) <= rollouts
    order = {rollout.name: place for place, rollout in enumerate(given_whole.rollouts)}
    for shard in shards:
        places = [order[rollout.name] for rollout in shard.rollouts]
        assert places == sorted(places)
    open_at_once = sum(shard.settings.max_concurrent_episodes for shard in shards)
    assert live <= open_at_once < live + len(shards)


def test_one_shard_is_the_whole_as_it_is() -> None:
    alone = whole(5, 2, 7)
    assert divided(alone, 1) == [alone]


def test_figures_of_shards_add_up_and_time_at_once_counts_once() -> None:
    parts = [
        CollectionStats(began=100.0, wall_s=10.0, engine_s=6.0, generated_tokens=50, end_reasons=Counter(completed=2)),
        CollectionStats(began=104.0, wall_s=8.0, engine_s=7.0, generated_tokens=70, end_reasons=Counter(turn_limit=1)),
    ]
    found = total(parts)
    assert (found.began, found.wall_s, found.engine_s, found.generated_tokens) == (100.0, 12.0, 13.0, 120)
    assert found.timings().tokens_per_s == 10.0
    assert found.end_reasons == Counter(completed=2, turn_limit=1)
    assert total(parts[:1]) == parts[0]
