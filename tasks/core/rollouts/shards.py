"""Rollouts in parts (shards) that know nothing of each other, so that any number of workers can play them.

How many shards there are decides what is sampled, because log-probs depend on a batch's make-up in the last digits.
Who plays a shard, and when, does not: `StageContext.executor` may be this process or other machines.
"""

import dataclasses
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.core.config.stage_inputs import PlayInputs
from tasks.core.interfaces.engine import Engine, Metered
from tasks.core.interfaces.stage import StageContext
from tasks.core.records.scores import ApiUsage, total_usage
from tasks.core.rollouts.episode import ONE_EPISODE_EACH, Collector
from tasks.core.rollouts.planning import PlannedRollout, PlaySettings
from tasks.core.rollouts.playing import open_rollout_resources, play_rollouts
from tasks.core.rollouts.scheduler import CollectionStats, total


@dataclass(frozen=True)
class Shard:
    """One part of the rollouts, and how to play it. Picklable."""

    rollouts: tuple[PlannedRollout, ...]
    settings: PlaySettings
    policy: Path | None
    """The checkpoint's folder; None: the base policy."""
    description: str
    collector: Collector = ONE_EPISODE_EACH

    def __len__(self) -> int:
        return len(self.rollouts)


@dataclass(frozen=True)
class PlayedRollouts:
    """Rollouts of one shard, or of several. Picklable."""

    rows: list[dict[str, Any]]
    """Rows of `schemas.PLAYED_ROLLOUTS`, sorted by task id and rollout index."""
    stats: CollectionStats
    usage: ApiUsage | None
    """None for an engine that costs nothing."""


def play_shard(context: StageContext[PlayInputs], shard: Shard) -> PlayedRollouts:
    """Play one shard in this process, with the world and the engine of `context`."""
    world, engine, chat = open_rollout_resources(context)
    _usage(engine)  # what a failed attempt paid for is not this one's
    stats = CollectionStats()
    rows = play_rollouts(
        world,
        engine,
        chat,
        shard.rollouts,
        shard.settings,
        policy=shard.policy,
        description=shard.description,
        stats=stats,
        collector=shard.collector,
    )
    return PlayedRollouts(rows, stats, _usage(engine))


def play_in_shards(
    context: StageContext[PlayInputs],
    planned: Sequence[PlannedRollout],
    settings: PlaySettings,
    *,
    policy: Path | None,
    description: str = "rollouts",
    collector: Collector = ONE_EPISODE_EACH,
) -> PlayedRollouts:
    """`play_rollouts` in `collection.shards` parts, by the executor of `context`. Raises what that raises."""
    shards = divided(Shard(tuple(planned), settings, policy, description, collector), context.inputs.shards)
    played = context.executor.map(play_shard, context, shards)
    rows = sorted((row for part in played for row in part.rows), key=lambda row: (row["task_id"], row["rollout_index"]))
    return PlayedRollouts(rows, total([part.stats for part in played]), total_usage(part.usage for part in played))


def divided(whole: Shard, count: int) -> list[Shard]:
    """`whole` in at most `count` shards: every task's rollouts stay together, tasks go round in the order of the plan.

    A shard has its share of the concurrent episodes, rounded up. One shard is the whole as it is.
    """
    tasks = list(dict.fromkeys(rollout.task.task_id for rollout in whole.rollouts))
    count = max(1, min(count, len(tasks)))
    place = {task: index % count for index, task in enumerate(tasks)}
    if count == 1:
        return [whole]
    settings = dataclasses.replace(
        whole.settings, max_concurrent_episodes=-(-whole.settings.max_concurrent_episodes // count)
    )
    return [
        Shard(
            tuple(rollout for rollout in whole.rollouts if place[rollout.task.task_id] == index),
            settings,
            whole.policy,
            f"{whole.description}, shard {index + 1} of {count}",
            deepcopy(whole.collector),
        )
        for index in range(count)
    ]


def _usage(engine: Engine) -> ApiUsage | None:
    """Usage of the engine since the last call; None for one that costs nothing."""
    return engine.take_usage() if isinstance(engine, Metered) else None
