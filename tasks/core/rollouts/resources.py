"""World, engine and chat format of a run: loaded once in a warm process, until their files change."""

from typing import NamedTuple

from tasks.core.capacity.known_models import read_model_config
from tasks.core.capacity.memory import memory_of
from tasks.core.config.stage_inputs import PlayInputs
from tasks.core.engines.registry import open_engine
from tasks.core.interfaces.engine import Engine, samples_in_background
from tasks.core.interfaces.stage import StageContext
from tasks.core.interfaces.world import World
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.loading import device, load_chat_format
from tasks.core.processes.freed_memory import return_device_blocks
from tasks.core.records.files import fingerprint
from tasks.core.worlds.registry import open_world


class RolloutResources(NamedTuple):
    """All that a process needs to play rollouts."""

    world: World
    engine: Engine
    chat: ChatFormat


def warm_world(context: StageContext[PlayInputs]) -> World:
    """The world whose tasks are played."""
    config, folder = context.inputs.world, context.layout.world
    return context.cache.get("world", (config, fingerprint(folder)), lambda: open_world(config, folder))


def warm_chat_format(context: StageContext[PlayInputs]) -> ChatFormat:
    """The chat format of the base policy."""
    folder = context.layout.base_policy
    key = (context.inputs.policy, fingerprint(folder))
    return context.cache.get("chat_format", key, lambda: load_chat_format(folder))


def open_rollout_resources(context: StageContext[PlayInputs]) -> RolloutResources:
    """The resources of the run. An engine that shares its device makes the learner give it up."""
    inputs, layout, cache = context.inputs, context.layout, context.cache
    world, chat = warm_world(context), warm_chat_format(context)
    learner = learner_bytes(context)
    played_with = (inputs.engine, inputs.chat_api, inputs.vllm, inputs.policy, inputs.world)
    engine = cache.get(
        "engine",
        (*played_with, learner, fingerprint(layout.base_policy), fingerprint(layout.world)),
        lambda: open_engine(inputs, inputs.policy, layout.base_policy, world, chat, learner),
    )
    if samples_in_background(engine) and engine.releases_device:
        cache.drop("learner_policy")
        return_device_blocks()
    return RolloutResources(world, engine, chat)


def learner_bytes(context: StageContext[PlayInputs]) -> float | None:
    """Bytes on a device that updates will need beside own servers; None for a run that trains nothing.

    They decide who is on the device and change no byte of any artifact: `memory` and `trains` are UNVERSIONED inputs.
    """
    inputs = context.inputs
    if inputs.engine != "vllm" or not inputs.trains:
        return None
    config = read_model_config(context.layout.base_policy)
    return memory_of(inputs.memory, config, device(inputs.policy).type).learner.total
