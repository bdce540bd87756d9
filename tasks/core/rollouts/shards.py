"""Rollouts in parts (shards) that do not depend on each other, so that any number of workers can play them.

`StageContext.executor` may be this process, several, or other machines. With the engine in process on a CPU neither
their number nor that of the shards changes a byte.

What a stage had played before it was stopped is kept in parts, each of which ends before the next begins, so that its
next attempt plays only the others. A play that was stopped ends with the bytes of one that was not.
"""

import dataclasses
import hashlib
import heapq
import json
import pickle
import shutil
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tasks.core.config.stage_inputs import PlayInputs
from tasks.core.interfaces.engine import Engine, Metered
from tasks.core.interfaces.engine_kind import find_engine
from tasks.core.interfaces.stage import StageContext
from tasks.core.interfaces.world import Paying, World
from tasks.core.policies.checkpoint_files import policy_digest
from tasks.core.records.files import fingerprint, replacing
from tasks.core.records.timings import ApiUsage, total_usage
from tasks.core.rollouts.early_stop import LengthRule, cut_longer
from tasks.core.rollouts.episode import ONE_EPISODE_EACH, Collector
from tasks.core.rollouts.planning import PlannedRollout, PlaySettings
from tasks.core.rollouts.playing import open_rollout_resources, place_of, play_rollouts
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
    rule: LengthRule | None = None
    """Early stop over all shards; None where each has its own, or none."""

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
    world_usage: ApiUsage | None = None
    """None for a world that costs nothing."""


def play_shard(context: StageContext[PlayInputs], shard: Shard) -> PlayedRollouts:
    """Play one shard in this process, with the world and the engine of `context`."""
    world, engine, chat = open_rollout_resources(context)
    _usage(engine), _world_usage(world)  # discards the usage of an earlier, failed attempt
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
        rule=shard.rule,
    )
    return PlayedRollouts(rows, stats, _usage(engine), _world_usage(world))


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
    inputs, executor = context.inputs, context.executor
    count = executor.places(context) if inputs.shards == "auto" else inputs.shards
    shards = divided(Shard(tuple(planned), settings, policy, description, collector), count)
    stop = settings.early_stop if find_engine(inputs.engine.name).in_process else None
    if stop is None or len(shards) == 1:
        return joined(executor.map(play_shard, context, shards))
    with TemporaryDirectory(prefix="early_stop_", dir=_messages_folder(context)) as folder:
        tasks = tuple(rollout.task.task_id for rollout in planned)
        rules = [LengthRule(stop, tasks, Path(folder), str(number)) for number in range(len(shards))]
        shards = [dataclasses.replace(shard, rule=rule) for shard, rule in zip(shards, rules, strict=True)]
        played = joined(executor.map(play_shard, context, shards))
    return dataclasses.replace(played, rows=cut_longer(stop, played.rows))


def _messages_folder(context: StageContext[PlayInputs]) -> Path:
    """Return a folder that all workers see, for what shards tell each other."""
    folder = context.layout.root / ".loopline"
    folder.mkdir(exist_ok=True)
    return folder.resolve()


def joined(parts: Sequence[PlayedRollouts]) -> PlayedRollouts:
    """Return the rollouts of all `parts` as if they had been one."""
    rows = list(heapq.merge(*(part.rows for part in parts), key=place_of))  # each part's rows are sorted
    return PlayedRollouts(
        rows,
        total([part.stats for part in parts]),
        total_usage(part.usage for part in parts),
        total_usage(part.world_usage for part in parts),
    )


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


def _world_usage(world: World) -> ApiUsage | None:
    return world.take_usage() if isinstance(world, Paying) else None


def _usage(engine: Engine) -> ApiUsage | None:
    """Return the engine's usage since the last call; None for an engine that costs nothing."""
    return engine.take_usage() if isinstance(engine, Metered) else None


PLAYED = Path(".loopline") / "played"
_EPISODES_EACH = 8
"""Rollouts of a part for each episode that may be open at once. With fewer, more of them wait for a part's longest."""


@dataclass(frozen=True)
class KeptParts:
    """The parts of one play, in a folder of their own."""

    folder: Path
    key: str
    """Digest of all that the rollouts follow from."""

    def begin(self) -> None:
        """Remove what another play has left in the folder."""
        named = self.folder / "key"
        if not named.exists() or named.read_text(encoding="utf-8") != self.key:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            named.write_text(self.key, encoding="utf-8")

    def read(self, number: int) -> PlayedRollouts | None:
        """Return part `number` if it was played whole."""
        try:
            content = self._path(number).read_bytes()
        except FileNotFoundError:
            return None
        played: PlayedRollouts = pickle.loads(content)
        return played

    def keep(self, number: int, played: PlayedRollouts) -> None:
        """Write part `number`, whole or not at all."""
        with replacing(self._path(number)) as temporary:
            temporary.write_bytes(pickle.dumps(played))

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:04}.pickle"


def play_in_parts(
    context: StageContext[PlayInputs],
    planned: Sequence[PlannedRollout],
    settings: PlaySettings,
    *,
    policy: Path,
    split: str,
    name: str,
) -> PlayedRollouts:
    """`play_in_shards` for settings without early stop, going on where an earlier attempt at this stage was stopped.

    `name` is that of the play within its split. A stage whose version nobody recorded keeps nothing, as other code may
    go on.
    """
    kept = _kept_parts(context, settings, policy, split, name) if context.version else None
    if kept is not None:
        kept.begin()
    played = []
    for number, part in enumerate(_parts(planned, settings)):
        found = kept.read(number) if kept is not None else None
        if found is None:
            found = play_in_shards(context, part, settings, policy=policy, description=f"{split}, {name}")
            if kept is not None:
                kept.keep(number, found)
        else:
            print(f"{split}, {name}: {len(part)} of {len(planned)} rollouts are kept from an attempt that was stopped")
        played.append(found)
    return joined(played)


def forget_played(root: Path, split: str, *names: str) -> None:
    """Remove what is kept of these plays of a split (none: of all), because the result is written."""
    for folder in (_folder(root, split, name) for name in names) if names else [root / PLAYED / split]:
        shutil.rmtree(folder, ignore_errors=True)


def _parts(planned: Sequence[PlannedRollout], settings: PlaySettings) -> list[Sequence[PlannedRollout]]:
    size = _EPISODES_EACH * settings.max_concurrent_episodes
    return [planned[first : first + size] for first in range(0, len(planned), size)]


def _kept_parts(
    context: StageContext[PlayInputs], settings: PlaySettings, policy: Path, split: str, name: str
) -> KeptParts:
    layout, size = context.layout, str(settings.max_concurrent_episodes)  # of a part; no version tells it
    follows_from = [
        context.version,
        size,
        policy_digest(policy),
        fingerprint(layout.world),
        fingerprint(layout.base_policy),
    ]
    key = hashlib.sha256(json.dumps([split, name, *follows_from]).encode()).hexdigest()
    return KeptParts(_folder(layout.root, split, name), key)


def _folder(root: Path, split: str, name: str) -> Path:
    return root / PLAYED / split / "".join(letter if letter.isalnum() else "_" for letter in name)
