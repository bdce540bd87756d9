"""Durations of the parts of a run on given hardware, in seconds. Pure arithmetic; see `hardware` for the rates."""

from dataclasses import dataclass

from tasks.core.capacity.flops import ModelShape, forward_flops, update_flops
from tasks.core.capacity.hardware import Hardware
from tasks.core.capacity.memory import EngineMemory
from tasks.core.capacity.workload import SPREAD, Workload
from tasks.core.config.params import Params
from tasks.core.config.policy import LoraSettings
from tasks.core.config.update import PAIRED
from tasks.core.config.world_settings import MeanEpisode

WORLD_WORKERS = 2
"""Cores for worlds on each device (16 of a GPU node's many; both of a laptop's)."""


@dataclass(frozen=True)
class Engines:
    """Replicas of the model that sample side by side."""

    replicas: int
    tensor_parallel: int
    memory: EngineMemory
    room: int
    """Episodes of mean length whose caches fit in the memory that the weights leave, on all replicas together."""


@dataclass(frozen=True)
class Playing:
    """Seconds of one batch of episodes."""

    reading: float
    """Prompts and observations, each token once."""
    sampling: float
    world: float
    """The world's time that sampling does not hide."""

    @property
    def total(self) -> float:
        return self.reading + self.sampling + self.world


def playing(
    rollouts: int, live: int, load: Workload, shape: ModelShape, lora: LoraSettings | None, engines: Engines,
    hardware: Hardware,
) -> Playing:  # fmt: skip
    """Return the time to play `rollouts` episodes, at most `live` at once, spread evenly over the replicas.

    A step of a replica reads the weights and the caches of its rows, or computes, whichever takes longer. There are as
    many steps as the longest episodes have sampled tokens.
    """
    mean, devices = load.episodes, engines.replicas * engines.tensor_parallel
    at_once = max(1, min(live, rollouts, engines.room))
    rows, waves = at_once / engines.replicas, max(1.0, rollouts / at_once)
    steps = waves * SPREAD * mean.sampled
    busy = rollouts * mean.sampled / engines.replicas / steps if steps else 0.0
    read = engines.memory.weights + min(rows, busy) * 0.5 * mean.tokens * engines.memory.cache_per_token
    per_token = forward_flops(shape, [1], 1, lora)
    computed = busy * per_token / (engines.tensor_parallel * hardware.flops * hardware.prefill_share)
    step = hardware.step_s + max(read / (hardware.bandwidth * hardware.decode_share), computed)
    prompts = forward_flops(shape, [round(mean.tokens)], 0, lora) * (1 - mean.sampled / mean.tokens) * rollouts
    reading = prompts / (devices * hardware.flops * hardware.prefill_share)
    chain = SPREAD * mean.turns * mean.turn_s * waves
    worked = rollouts * mean.turns * mean.turn_s / (WORLD_WORKERS * devices)
    return Playing(reading, steps * step, max(chain, worked - steps * step - reading))


def trained_sequences(mean: MeanEpisode, *, dropped: bool) -> list[int]:
    """Return the tokens of each sequence of a mean rollout, with one for each turn if thoughts are `dropped`."""
    if not dropped:
        return [round(mean.tokens)]
    turn = mean.sampled_per_turn + mean.observed_per_turn
    return [round(mean.prompt + number * turn) for number in range(1, max(1, round(mean.turns)) + 1)]


def updating(load: Workload, params: Params, shape: ModelShape, gpus: int, hardware: Hardware) -> tuple[float, float]:
    """Return (seconds, FLOPs) of one update on `gpus` devices.

    With `earlier_thoughts: as_template` every turn is taken to have a thought that later ones do not see.
    """
    sequences = trained_sequences(load.episodes, dropped=params.policy.chat.earlier_thoughts == "as_template")
    together = (2 if params.update.objective in PAIRED else 1) * sum(sequences)
    flops = update_flops(
        shape,
        sequences * round(load.kept),
        round(load.kept * load.episodes.sampled),
        params.policy.lora if params.policy.trained == "lora" else None,
        epochs=params.update.epochs,
        reference=params.update.needs_reference,
        recompute=params.update.activation_checkpointing,
        values_first=together > max(params.update.tokens_per_pack, sequences[-1]),
    )
    return flops / (gpus * hardware.flops * hardware.learner_share), flops
