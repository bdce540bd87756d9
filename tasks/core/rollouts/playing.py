"""Playing rollouts: the part that collection, evaluation and scoring share."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import parent_process
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from tasks.core.capacity.known_models import read_model_config
from tasks.core.capacity.memory import memory_of
from tasks.core.config.stage_inputs import PlayInputs
from tasks.core.engines.registry import open_engine
from tasks.core.interfaces.engine import Engine, ProvesDelivery, samples_in_background
from tasks.core.interfaces.stage import StageContext
from tasks.core.interfaces.world import World
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.checkpoint_files import policy_digest
from tasks.core.policies.loading import device, load_chat_format
from tasks.core.processes.process_memory import return_device_blocks
from tasks.core.processes.usable_cores import usable_cores
from tasks.core.records.files import fingerprint
from tasks.core.rollouts.episode import ONE_EPISODE_EACH, Collector
from tasks.core.rollouts.planning import PlannedRollout, PlaySettings
from tasks.core.rollouts.scheduler import CollectionStats, Scheduler
from tasks.core.worlds.registry import open_world


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
    learner = learner_bytes(context)
    played_with = (inputs.engine, inputs.policy, inputs.world)
    engine = cache.get(
        "engine",
        (*played_with, learner, fingerprint(layout.base_policy), fingerprint(layout.world)),
        lambda: open_engine(inputs.engine, inputs.policy, layout.base_policy, world, chat, learner),
    )
    if samples_in_background(engine) and engine.releases_device:
        cache.drop("learner_policy")
        return_device_blocks()
    return RolloutResources(world, engine, chat)


def learner_bytes(context: StageContext[PlayInputs]) -> float | None:
    """Return the bytes that updates will need on a device shared with our servers; None for a run without training.

    They decide who is on the device and change no byte of any artifact: `memory` and `trains` are UNVERSIONED inputs.
    """
    inputs = context.inputs
    if inputs.engine.name != "vllm" or not inputs.trains:
        return None
    config = read_model_config(context.layout.base_policy)
    return memory_of(inputs.memory, config, device(inputs.policy).type).learner.total


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
) -> list[dict[str, Any]]:
    """Play all planned rollouts, and those that `collector` adds, with the checkpoint in `policy` (None: base policy).

    Returns one row of `schemas.PLAYED_ROLLOUTS` per rollout, sorted by task id and rollout index; no rollout is ever
    missing. Rollouts are void when early stop cuts them or when the world breaks more often than
    `settings.world_retries` allows: their end reason says so and their return is 0. Adds the figures of this call to
    `stats`.

    Raises ValueError when the checkpoint does not fit the base model or a rollout is planned twice. Any exception of a
    world other than `WorldFault` and `ExecutionTimeout` is a bug: it is raised, with a note that names the task, after
    all episodes are closed.
    """
    if len({rollout.name for rollout in planned}) < len(planned):
        raise ValueError("a rollout is planned twice: task and rollout index must differ")
    engine.load_adapter(policy)
    origin = {
        "adapter_digest": BASE_DIGEST if policy is None else policy_digest(policy),
        "engine": engine.name,
        "engine_version": engine.version,
    }
    stats = stats or CollectionStats()
    workers = min(16, 2 * usable_cores())
    hidden = None if parent_process() is None else True  # the bars of several processes would overwrite each other
    with (
        ThreadPoolExecutor(workers, "world") as pool,
        tqdm(total=len(planned), desc=description, disable=hidden) as bar,
    ):

        def on_row(known: int) -> None:
            bar.total = known
            bar.set_postfix_str(f"{stats.tokens_per_s:,.0f} tok/s", refresh=False)
            bar.update()

        try:
            rows = Scheduler(engine, world, chat, collector, planned, settings, pool, stats, on_row).run()
        finally:
            if isinstance(engine, ProvesDelivery):  # includes the proofs of servers that were restarted
                stats.deliveries += engine.take_deliveries()
            if samples_in_background(engine):
                engine.sleep()
    return sorted((row | origin for row in rows), key=lambda row: (row["task_id"], row["rollout_index"]))
