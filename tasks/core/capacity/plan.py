"""Needs of a profile on given hardware: memory, tokens, FLOPs, hours and disk. Pure; `loopline plan` prints it.

Memory is that of memory.py, for learner and engine. Time is work over a rate of the hardware: an update's FLOPs as if
no rollout were filtered, and of rollouts what engines read and compute by the data sheet, or the worlds' own work. That
is a lower bound, since engines reach less, and long episodes hold up a batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tasks.core.capacity.flops import (
    ModelShape,
    adapter_parameters,
    forward_flops,
    parameters,
    update_flops,
)
from tasks.core.capacity.hardware import GB, HARDWARE, Hardware
from tasks.core.capacity.memory import (
    ADAPTER_BYTES,
    DTYPE_BYTES,
    MASTER_BYTES,
    EngineMemory,
    LearnerMemory,
    choose_sharing,
    engine_memory,
    memory_of,
)
from tasks.core.capacity.workload import Workload, longest_pack, longest_rollout, workload
from tasks.core.config.params import Params
from tasks.core.config.policy import PolicyConfig
from tasks.core.config.stage_inputs import MemoryInputs
from tasks.core.config.update import PAIRED
from tasks.core.config.world_settings import MeanEpisode
from tasks.core.policies.positions import context_length

_WEIGHTS_SHARE = 0.6
"""Share of a device's memory that an engine's weights may take; the rest is for the caches."""
_WORLD_WORKERS = 2
"""Cores for worlds on each device (16 of a GPU node's many; both of a laptop's)."""
_ROLLOUT_BYTES, _BATCH_BYTES, _REPORT_BYTES = 3.0, 2.5, 4.6
"""Bytes on disk per token of a rollout, of a batch and in the report, as a run of the embedded policy had them."""


@dataclass(frozen=True)
class Engines:
    """Replicas of the model that sample side by side."""

    replicas: int
    tensor_parallel: int
    memory: EngineMemory
    room: int
    """Episodes of mean length whose caches fit in the memory that the weights leave, on all replicas together."""


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
    rollouts_s: Mapping[str, float]
    """Seconds of one collection, one evaluation and all scoring, at least."""
    update_s: float
    update_flops: float
    """FLOPs of one update on all rollouts of an iteration; filters leave fewer."""
    generation_flops: float
    """FLOPs of all episodes of the run."""
    disk: Mapping[str, float]

    @property
    def seconds(self) -> float:
        """Return the seconds of all rollouts and updates; stages follow one another."""
        load, played = self.load, self.rollouts_s
        trained = played["collection"] * load.collections + self.update_s * load.iterations
        return trained + played["evaluation"] * load.evaluations + played["scoring"]

    @property
    def engine_bytes(self) -> float:
        """Return the memory of one engine device, with the caches of the episodes that run at once."""
        memory = self.engines.memory
        return memory.loaded + self.live / self.engines.replicas * self.load.episodes.tokens * memory.cache_per_token

    @property
    def needed_bytes(self) -> float:
        """Return the memory of one device that learner and engine need, at once or in turns."""
        both = (self.learner.total if self.load.iterations else 0.0, self.engine_bytes)
        return max(both) if self.releases_device else sum(both)

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
    params: Params, config: Mapping[str, Any], hardware: Hardware, gpus: int, episodes: MeanEpisode | None = None
) -> Plan:
    """Plan `params` with a base model of this config.json. Raises ValueError for sizes that are missing."""
    shape, load, inputs = ModelShape.of_config(config), workload(params, episodes), MemoryInputs.of(params)
    context, lora = context_length(config), params.policy.lora if params.policy.trained == "lora" else None
    engines = _engines(params, shape, hardware, gpus, load.episodes.tokens)
    kind = "cpu" if hardware is HARDWARE["cpu"] else "cuda"
    memory = memory_of(inputs, config, kind, ranks=gpus, tensor_parallel=engines.tensor_parallel)
    live = max(0, min(params.collection.max_concurrent_episodes, engines.room))
    flops = _update_flops(load, params, shape)
    played = {"collection": load.collected, "evaluation": load.evaluated, "scoring": load.scored}
    each = forward_flops(shape, [round(load.episodes.tokens)], round(load.episodes.sampled), lora)
    shared = params.engine.kind.shared_device(params.engine.own)
    learner = memory.learner.total if params.iterations else None
    return Plan(
        hardware=hardware,
        gpus=gpus,
        parameters=parameters(shape),
        load=load,
        longest_rollout=longest_rollout(inputs, context),
        longest_pack=longest_pack(inputs, context),
        learner=memory.learner,
        engines=engines,
        releases_device=shared is None
        or choose_sharing(
            shared, weights=memory.engine.loaded, learner=learner, memory=int(hardware.memory), servers=1
        ).releases_device,
        live=live,
        rollouts_s={
            name: _playing_s(count, live, load.episodes, shape, engines, hardware, each)
            for name, count in played.items()
        },
        update_s=flops / (gpus * hardware.flops * hardware.learner_share),
        update_flops=flops,
        generation_flops=each * load.rollouts,
        disk=_disk_bytes(load, params.policy, shape),
    )


def _playing_s(
    rollouts: int, live: int, mean: MeanEpisode, shape: ModelShape, engines: Engines, hardware: Hardware, flops: float
) -> float:
    """Return the seconds that `rollouts` episodes take at least, `live` of them at once, spread over the replicas.

    A step reads the weights and the caches of its rows, half full on average; computing takes `flops` for each episode,
    and the worlds' own work is done meanwhile.
    """
    devices = engines.replicas * engines.tensor_parallel
    at_once = max(1, min(live, rollouts))
    steps = max(1.0, rollouts / at_once) * mean.sampled
    caches = at_once / engines.replicas * 0.5 * mean.tokens * engines.memory.cache_per_token
    reading = steps * (engines.memory.weights + caches) / hardware.bandwidth
    worlds = rollouts * mean.turns * mean.turn_s / (_WORLD_WORKERS * devices)
    return max(reading + rollouts * flops / (devices * hardware.flops), worlds)


def trained_sequences(mean: MeanEpisode, *, dropped: bool) -> list[int]:
    """Return the tokens of each sequence of a mean rollout, with one for each turn if thoughts are `dropped`."""
    if not dropped:
        return [round(mean.tokens)]
    turn = mean.sampled_per_turn + mean.observed_per_turn
    return [round(mean.prompt + number * turn) for number in range(1, max(1, round(mean.turns)) + 1)]


def _update_flops(load: Workload, params: Params, shape: ModelShape) -> float:
    """Return FLOPs of one update on all rollouts of an iteration.

    With `earlier_thoughts: as_template` every turn is taken to have a thought that later ones do not see.
    """
    sequences = trained_sequences(load.episodes, dropped=params.policy.chat.earlier_thoughts == "as_template")
    together = (2 if params.update.objective in PAIRED else 1) * sum(sequences)
    return update_flops(
        shape,
        sequences * load.collected,
        round(load.collected * load.episodes.sampled),
        params.policy.lora if params.policy.trained == "lora" else None,
        epochs=params.update.epochs,
        reference=params.update.needs_reference,
        recompute=params.update.activation_checkpointing,
        values_first=together > max(params.update.tokens_per_pack, sequences[-1]),
    )


def _disk_bytes(load: Workload, policy: PolicyConfig, shape: ModelShape) -> dict[str, float]:
    """Return bytes by artifact. DVC's cache holds them again where the file system has no links."""
    element, lora = DTYPE_BYTES[policy.dtype], policy.trained == "lora"
    trained, each = (adapter_parameters(shape, policy.lora), ADAPTER_BYTES) if lora else (parameters(shape), element)
    kept = MASTER_BYTES * (2 + (each != MASTER_BYTES))  # AdamW's moments, and masters of weights below float32
    batches = load.collected * load.episodes.tokens * load.iterations
    return {
        "base model": float(parameters(shape) * element),
        "checkpoints": float(trained * ((each + kept) * load.iterations + each)),
        "rollouts": _ROLLOUT_BYTES * load.tokens + _BATCH_BYTES * batches,
        "report": _REPORT_BYTES * load.tokens,
    }


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
    while spread < gpus and engine_memory(shape, params.policy, spread).weights > _WEIGHTS_SHARE * hardware.memory:
        spread *= 2
    memory = engine_memory(shape, params.policy, spread)
    replicas = max(1, gpus // spread)
    left = hardware.memory - hardware.reserved - memory.loaded
    return Engines(replicas, spread, memory, int(replicas * left // (tokens * memory.cache_per_token)))


def _gb(count: float) -> str:
    return f"{count / GB:.1f} GB"
