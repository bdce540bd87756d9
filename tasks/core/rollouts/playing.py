"""Playing rollouts: the part that collection, evaluation and scoring share."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tasks.core.config.stage_inputs import PlayInputs
from tasks.core.interfaces.engine import Engine, ProvesDelivery, samples_in_background
from tasks.core.interfaces.engine_kind import EngineNeeds, find_engine, open_engine
from tasks.core.interfaces.stage import StageContext
from tasks.core.interfaces.world import World
from tasks.core.interfaces.world_kind import find_world, open_world
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.chat_settings import load_chat_format
from tasks.core.policies.checkpoint_files import policy_digest
from tasks.core.processes.resources import return_device_blocks, usable_cores
from tasks.core.processes.shown_work import shown_work
from tasks.core.records.files import fingerprint
from tasks.core.rollouts.early_stop import LengthRule, cut_longer, rule_of
from tasks.core.rollouts.episode import ONE_EPISODE_EACH, Collector
from tasks.core.rollouts.planning import PlannedRollout, PlaySettings
from tasks.core.rollouts.scheduler import CollectionStats, Scheduler


class RolloutResources(NamedTuple):
    """Everything a process needs to play rollouts."""

    world: World
    engine: Engine
    chat: ChatFormat


def warm_world(context: StageContext[PlayInputs]) -> World:
    """Return the world whose tasks are played, from the cache if possible."""
    config, folder = context.inputs.world, context.layout.world
    return context.cache.get("world", (config, fingerprint(folder)), lambda: open_world(config, folder))


def warm_chat_format(context: StageContext[PlayInputs]) -> ChatFormat:
    """Return the base policy's chat format, from the cache if possible."""
    folder = context.layout.base_policy
    key = (context.inputs.policy, fingerprint(folder))
    return context.cache.get("chat_format", key, lambda: load_chat_format(folder))


def open_rollout_resources(context: StageContext[PlayInputs]) -> RolloutResources:
    """Open the world, engine and chat format of the run.

    An engine that shares its device makes the learner release it.
    """
    inputs, layout, cache = context.inputs, context.layout, context.cache
    world, chat = warm_world(context), warm_chat_format(context)
    memory = inputs.memory if inputs.trains else None  # decides who is on the device, and no byte of any artifact
    played_with = (inputs.engine, inputs.policy, inputs.world)
    engine = cache.get(
        "engine",
        (*played_with, memory, fingerprint(layout.base_policy), fingerprint(layout.world)),
        lambda: open_engine(inputs.engine, EngineNeeds(inputs.policy, layout.base_policy, world, chat, memory)),
    )
    if samples_in_background(engine) and engine.releases_device:
        cache.drop("learner_policy")
        return_device_blocks()
    return RolloutResources(world, engine, chat)


def forget_paid(inputs: PlayInputs, task_ids: Iterable[str]) -> None:
    """Discard what engine and world have paid for on these tasks, because their result is written now."""
    tasks = list(task_ids)
    find_engine(inputs.engine.name).forget(inputs.engine.own, tasks)
    find_world(inputs.world.name).forget(inputs.world.settings, tasks)


BASE_DIGEST = "base"
"""`adapter_digest` of the base policy's rollouts."""


def play_rollouts(
    world: World,
    engine: Engine,
    chat: ChatFormat,
    planned: Sequence[PlannedRollout],
    settings: PlaySettings,
    *,
    policy: Path | None,
    description: str = "rollouts",
    stats: CollectionStats | None = None,
    collector: Collector = ONE_EPISODE_EACH,
    rule: LengthRule | None = None,
) -> list[dict[str, Any]]:
    """Play all planned rollouts, and those that `collector` adds, with the checkpoint in `policy` (None: base policy).

    Returns one row of `schemas.PLAYED_ROLLOUTS` per rollout, sorted by task id and rollout index; no rollout is ever
    missing. Rollouts are void when early stop cuts them or when the world breaks more often than
    `settings.world_retries` allows: their end reason says so and their return is 0. Adds the figures of this call to
    `stats`. `rule` is early stop over more rollouts than these; None: over these.

    Raises ValueError when the checkpoint does not fit the base model or a rollout is planned twice. Any exception of a
    world other than `WorldFault` and `ExecutionTimeout` is a bug: it is raised, with a note that names the task, after
    all episodes are closed.
    """
    if len({rollout.name for rollout in planned}) < len(planned):
        raise ValueError("a rollout is planned twice: task and rollout index must differ")
    engine.load_adapter(policy)
    if samples_in_background(engine):
        rule = None
    elif rule is None:
        rule = rule_of(settings.early_stop, planned)
    origin = {
        "adapter_digest": BASE_DIGEST if policy is None else policy_digest(policy),
        "engine": engine.name,
        "engine_version": engine.version,
    }
    stats = stats or CollectionStats()
    workers = min(16, 2 * usable_cores())
    with (
        ThreadPoolExecutor(workers, "world") as pool,
        shown_work(description, len(planned), "rollout", leave=True) as work,
    ):

        def on_row(known: int) -> None:
            work.total = known
            work.advance(note=f"{stats.tokens_per_s:,.0f} tok/s")

        try:
            rows = Scheduler(engine, world, chat, collector, planned, settings, pool, stats, on_row, rule).run()
        finally:
            if isinstance(engine, ProvesDelivery):  # includes the proofs of servers that were restarted
                stats.deliveries += engine.take_deliveries()
            if samples_in_background(engine):
                engine.sleep()
    if rule is not None and len(rule.planned) == len(planned):
        rows = cut_longer(rule.stop, rows)
    return sorted((row | origin for row in rows), key=place_of)


def place_of(row: Mapping[str, Any]) -> tuple[str, int]:
    """Return the key by which rows of rollouts are sorted."""
    return row["task_id"], row["rollout_index"]
