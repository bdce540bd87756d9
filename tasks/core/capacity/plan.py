"""Needs of a profile on given hardware: memory, tokens, FLOPs, hours and disk. Pure; `loopline plan` prints it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tasks.core.capacity.duration import Engines, Playing, playing, updating
from tasks.core.capacity.flops import ModelShape, generation_flops, parameters
from tasks.core.capacity.hardware import GB, HARDWARE, Hardware
from tasks.core.capacity.memory import DeviceMemory, LearnerMemory, choose_sharing, engine_memory, memory_of
from tasks.core.capacity.overheads import Overheads, disk_bytes, overheads
from tasks.core.capacity.workload import KEPT_SHARE, Workload, longest_pack, longest_rollout, workload
from tasks.core.config.params import Params
from tasks.core.config.stage_inputs import MemoryInputs
from tasks.core.config.world_settings import MeanEpisode
from tasks.core.policies.positions import context_length

WEIGHTS_SHARE = 0.6
"""Share of a device's memory that an engine's weights may take; the rest is for the caches."""


@dataclass(frozen=True)
class Plan:
    """The figures of one profile on `gpus` devices. Bytes, seconds, FLOPs."""

    hardware: Hardware
    gpus: int
    parameters: int
    load: Workload
    longest_rollout: int
    longest_pack: int
    learner: LearnerMemory
    engines: Engines
    releases_device: bool
    """Whether learner and engines, on the same devices, take turns."""
    live: int
    """Episodes that run at once: collection.max_concurrent_episodes, or as many as the caches hold."""
    collecting: Playing
    updating_s: float
    update_flops: float
    evaluating: Playing
    scoring: Playing
    generation_flops: float
    """FLOPs of all episodes of the run."""
    disk: Mapping[str, float]
    overheads: Overheads

    @property
    def seconds(self) -> float:
        """Return the seconds of the whole run; stages follow one another."""
        load = self.load
        trained = self.collecting.total * load.collections + self.updating_s * load.iterations
        worked = trained + self.evaluating.total * load.evaluations + self.scoring.total
        return worked + self.overheads.total

    @property
    def cache_bytes(self) -> float:
        """Return the cache per engine device, for the episodes that run at once at their mean length."""
        return self.live / self.engines.replicas * self.load.episodes.tokens * self.engines.memory.cache_per_token

    @property
    def needed_bytes(self) -> float:
        """Return the memory of one device that learner and engine need, at once or in turns."""
        learner = self.learner.total if self.load.iterations else 0.0
        engine = self.engines.memory.loaded + self.cache_bytes
        return max(learner, engine) if self.releases_device else learner + engine

    @property
    def flops(self) -> float:
        return self.update_flops * self.load.iterations + self.generation_flops

    def warnings(self) -> list[str]:
        """Return warnings of parts that do not fit, with the knobs to turn."""
        room = self.hardware.memory - self.hardware.reserved
        problems = []
        if self.learner.total > room and self.load.iterations:
            problems.append(f"the learner needs {_gb(self.learner.total)} of {_gb(room)}: {advice(self.learner)}")
        if self.engines.room < 1:
            problems.append(
                f"an engine's weights take {_gb(self.engines.memory.weights)} of {_gb(room)} and leave no room for an "
                "episode: use more devices, or policy.dtype: bfloat16"
            )
        return problems


def make_plan(
    params: Params,
    config: Mapping[str, Any],
    hardware: Hardware,
    gpus: int,
    episodes: MeanEpisode | None = None,
    kept_share: float = KEPT_SHARE,
) -> Plan:
    """Plan `params` with a base model of this config.json. Raises ValueError for sizes that are missing."""
    shape, load = ModelShape.of_config(config), workload(params, episodes, kept_share)
    lora = params.policy.lora if params.policy.trained == "lora" else None
    context, memory_inputs = context_length(config), MemoryInputs.of(params)
    pack = longest_pack(memory_inputs, context)
    engines = _engines(params, shape, hardware, gpus, load.episodes.tokens)
    kind = "cpu" if hardware is HARDWARE["cpu"] else "cuda"
    memory = memory_of(memory_inputs, config, kind, ranks=gpus, tensor_parallel=engines.tensor_parallel)
    live = params.collection.max_concurrent_episodes
    seconds, flops = updating(load, params, shape, gpus, hardware)
    disk, releases_device = disk_bytes(load, params.policy, shape), _releases_device(params, memory, hardware)

    def play(rollouts: int) -> Playing:
        return playing(rollouts, live, load, shape, lora, engines, hardware)

    return Plan(
        hardware=hardware,
        gpus=gpus,
        parameters=parameters(shape),
        load=load,
        longest_rollout=longest_rollout(memory_inputs, context),
        longest_pack=pack,
        learner=memory.learner,
        engines=engines,
        releases_device=releases_device,
        live=max(0, min(live, engines.room)),
        collecting=play(load.collected),
        updating_s=seconds,
        update_flops=flops,
        evaluating=play(load.evaluated),
        scoring=play(load.scored),
        generation_flops=generation_flops(shape, [round(load.episodes.tokens)], round(load.episodes.sampled), lora)
        * load.rollouts,
        disk=disk,
        overheads=overheads(
            load, params, shape, hardware, sum(disk.values()) - disk["base model"], releases_device=releases_device
        ),
    )


def advice(memory: LearnerMemory) -> str:
    """Return the knob that lowers the largest part of the learner's memory."""
    knobs = {
        "weights": "policy.dtype: bfloat16, or more ranks with update.distributed.sharding: fsdp",
        "activations": "update.activation_checkpointing: true, a smaller update.tokens_per_pack, or shorter episodes "
        "(collection.limits)",
        "work": "a smaller update.logprob_chunk, then a smaller update.tokens_per_pack",
        "optimizer": "policy.trained: lora, a smaller policy.lora.rank, or more ranks",
        "gradients": "policy.trained: lora, a smaller policy.lora.rank, or more ranks",
        "adapter": "a smaller policy.lora.rank",
        "critic": "a smaller update.tokens_per_pack, or a method without a critic",
    }
    largest = max(knobs, key=lambda name: float(getattr(memory, name)))
    return f"{largest} takes most of it ({_gb(getattr(memory, largest))}); set {knobs[largest]}"


def _engines(params: Params, shape: ModelShape, hardware: Hardware, gpus: int, tokens: float) -> Engines:
    """Return as many replicas as there are devices for.

    Each spans as many devices as the params say, or at least as many (a power of two) as leave room for caches.
    """
    spread = min(gpus, params.engine.kind.devices(params.engine.own))
    while spread < gpus and engine_memory(shape, params.policy, spread).weights > WEIGHTS_SHARE * hardware.memory:
        spread *= 2
    memory = engine_memory(shape, params.policy, spread)
    replicas = max(1, gpus // spread)
    left = hardware.memory - hardware.reserved - memory.loaded
    return Engines(replicas, spread, memory, int(replicas * left // (tokens * memory.cache_per_token)))


def _releases_device(params: Params, memory: DeviceMemory, hardware: Hardware) -> bool:
    """Return whether the engine leaves the device for an update; only servers may stay loaded."""
    shared = params.engine.kind.shared_device(params.engine.own)
    if shared is None:
        return True
    weights, learner = memory.engine.loaded, memory.learner.total if params.iterations else None
    device = int(hardware.memory)
    return choose_sharing(shared, weights=weights, learner=learner, memory=device, servers=1).releases_device


def _gb(count: float) -> str:
    return f"{count / GB:.1f} GB"
