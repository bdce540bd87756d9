"""Rollouts in parts (shards) that do not depend on each other, so that any number of workers can play them.

The number of shards changes what is sampled, because the last digits of log-probs depend on the make-up of a batch. Who
plays a shard, and when, changes nothing: `StageContext.executor` may be this process or other machines.
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
    """One part of the rollouts, with how to play it. Picklable."""

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
    _usage(engine)  # discards the usage of an earlier, failed attempt
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
    """Split a shard into at most `count` shards.

    A task's rollouts stay together; tasks go to the shards in turn, in the order of the plan. Each shard gets its share
    of the concurrent episodes, rounded up. With one shard, returns `whole` unchanged.
    """
    tasks = list(dict.fromkeys(rollout.task.task_id for rollout in whole.rollouts))
    count = max(1, min(count, len(tasks)))
    shard_of = {task: index % count for index, task in enumerate(tasks)}
    if count == 1:
        return [whole]
    settings = dataclasses.replace(
        whole.settings, max_concurrent_episodes=-(-whole.settings.max_concurrent_episodes // count)
    )
    return [
        Shard(
            tuple(rollout for rollout in whole.rollouts if shard_of[rollout.task.task_id] == index),
            settings,
            whole.policy,
            f"{whole.description}, shard {index + 1} of {count}",
            deepcopy(whole.collector),
        )
        for index in range(count)
    ]


def _usage(engine: Engine) -> ApiUsage | None:
    """Return the engine's usage since the last call; None for an engine that costs nothing."""
    return engine.take_usage() if isinstance(engine, Metered) else None
