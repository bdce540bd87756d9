"""Memory in bytes that one device needs for the learner and for an engine, and whether both fit side by side.

The learner's part was derived from the tensors that autograd keeps for a decoder layer under peft. It agrees within a
few percent with torch's own record of allocations on a CPU (tests/core/capacity/test_memory.py), with and without
checkpointing, in float32 and with a bfloat16 base. Packs that run in parallel need this much each: with SmolLM2-135M in
float32 and two packs of 2,048 positions, the process grew by 7.2 GB where the formula says 6.4. Sharding (FSDP2) and
GPUs follow by arithmetic and have not been measured.

Layers with linear attention count as layers with softmax attention of the same model; this has not been measured.

Loading needs no more than training: ranks that share a model read their parts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tasks.core.capacity.flops import ModelShape, adapter_parameters, parameters, value_head_parameters
from tasks.core.capacity.hardware import GIB
from tasks.core.capacity.workload import longest_pack
from tasks.core.config.engine import SharedDevice
from tasks.core.config.policy import PolicyConfig
from tasks.core.config.stage_inputs import MemoryInputs
from tasks.core.config.update import UpdateConfig
from tasks.core.policies.positions import context_length
from tasks.core.processes.resources import side_by_side, usable_cores

LearnerKnobs = UpdateConfig | MemoryInputs
ADAPTER_BYTES = 4
"""Bytes per number: LoRA's matrices, their gradients and AdamW's two moments are float32."""
CRITIC_BYTES = 4
"""Bytes per number: a critic's weights, gradients and moments are float32."""
LOGITS_BYTES, ENTROPY_BYTES = 12, 13
"""Bytes per logit of a chunk while its gradient is computed: float32 logits, log-softmax and gradient; with an entropy
bonus also the softmax, its gradient, and a mask.
"""
MASTER_BYTES = 4
"""Bytes per number: the optimizer steps float32 values. Weights of lower precision have float32 masters, and float32
copies of their gradients for the step.
"""
DTYPE_BYTES = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True)
class LearnerMemory:
    """Bytes on one device at the peak of an update."""

    weights: float
    """The base model, or this rank's part of it and the layers gathered at one time."""
    adapter: float
    gradients: float
    """Accumulated gradients, and those of packs that run in parallel. A sharded policy that is trained whole also has
    whole gradients before they are added over the ranks.
    """
    optimizer: float
    """AdamW's moments, and masters of weights below float32."""
    activations: float
    """Tensors kept from the forward pass for the backward pass."""
    critic: float
    """The critic's weights, gradients and optimizer, whole on every rank. Its activations are freed before `work`."""
    work: float
    """The largest temporary.

    A chunk's logits, one layer's gradients (checkpointing: and activations), or the step's float32 copies of gradients,
    when activations are freed.
    """

    @property
    def total(self) -> float:
        return float(sum(vars(self).values()))


@dataclass(frozen=True)
class EngineMemory:
    """Bytes on each device of one replica."""

    weights: float
    adapter: float
    cache_per_token: float
    """Keys and values of one token."""

    @property
    def loaded(self) -> float:
        """Return the bytes of a loaded engine without caches."""
        return self.weights + self.adapter


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes on one device, for the plan, an engine that shares the device with an update, and the preflight."""

    learner: LearnerMemory
    engine: EngineMemory


def memory_of(
    inputs: MemoryInputs, model: Mapping[str, Any], device: str, *, ranks: int | None = None, tensor_parallel: int = 1
) -> DeviceMemory:
    """Return the memory on each of `ranks` devices (None: update.distributed's) for a base model of this config.json.

    `device`: torch's name of their type. The learner passes its longest packs; an engine's replica lies on
    `tensor_parallel` devices. Raises ValueError naming a size that is missing.
    """
    shape, pack = ModelShape.of_config(model), longest_pack(inputs, context_length(model))
    ranks = ranks or inputs.distributed.size
    return DeviceMemory(
        learner=learner_memory(shape, inputs.policy, inputs, pack, pack - 1, ranks, packs_at_once(inputs, device)),
        engine=engine_memory(shape, inputs.policy, tensor_parallel),
    )


def packs_at_once(inputs: MemoryInputs, device: str) -> int:
    """Return how many packs a rank differentiates in parallel: several on a CPU, unless its weights are sharded."""
    distributed = inputs.distributed
    if device != "cpu" or (distributed.size > 1 and distributed.sharding == "fsdp"):
        return 1
    return side_by_side(inputs.policy.cpu_threads or usable_cores(), distributed.ranks)


def learner_memory(
    shape: ModelShape,
    policy: PolicyConfig,
    update: LearnerKnobs,
    positions: int,
    policy_tokens: int,
    ranks: int,
    packs: int = 1,
) -> LearnerMemory:
    """Return the memory of a rank with `packs` at once, each of `positions`, `policy_tokens` of them the policy's."""
    element, lora = DTYPE_BYTES[policy.dtype], policy.trained == "lora"
    trained, each = (adapter_parameters(shape, policy.lora), ADAPTER_BYTES) if lora else (parameters(shape), element)
    shards = ranks if update.distributed.sharding == "fsdp" else 1
    masters = 0 if each == MASTER_BYTES else trained * MASTER_BYTES / shards
    step = trained * (MASTER_BYTES - each) / shards
    gathered = _gathered(shape) * element if shards > 1 else 0
    activations = packs * (positions * _kept_per_token(shape, policy, update, element) + _folded(shape, policy, update))
    passing = max(
        _head_work(shape, policy, update, positions, policy_tokens),
        positions * _layer_work(shape, policy, update, element),
    )
    return LearnerMemory(
        weights=parameters(shape) * element / shards + gathered,
        adapter=trained * ADAPTER_BYTES / shards if lora else 0.0,
        gradients=(packs + (packs > 1)) * trained * each / shards + (0 if lora else gathered),
        optimizer=2 * trained * MASTER_BYTES / shards + masters,
        activations=activations,
        critic=(3 + packs) * CRITIC_BYTES * value_head_parameters(shape.width) if update.critic else 0.0,
        work=max(packs * passing, step - activations),
    )


def engine_memory(shape: ModelShape, policy: PolicyConfig, tensor_parallel: int) -> EngineMemory:
    """Return the memory of an engine that spreads the model over `tensor_parallel` devices."""
    element = DTYPE_BYTES[policy.dtype]
    adapter = adapter_parameters(shape, policy.lora) * element if policy.trained == "lora" else 0
    heads = max(1, shape.kv_heads / tensor_parallel)
    return EngineMemory(
        weights=parameters(shape) * element / tensor_parallel,
        adapter=adapter / tensor_parallel,
        cache_per_token=2 * shape.softmax_layers * heads * shape.head_width * element,
    )


def layer_activations(shape: ModelShape, policy: PolicyConfig) -> float:
    """Return the bytes per token that the backward pass needs of one decoder layer.

    Below float32 the norms keep their input in float32; what the adapters keep (`lora_product`) has the base's dtype.
    """
    element, width, ffn = DTYPE_BYTES[policy.dtype], shape.width, shape.feed_forward
    queries, keys = shape.heads * shape.head_width * (1 + shape.gated), shape.kv_heads * shape.head_width
    ranks = 7 * policy.lora.rank * element if policy.trained == "lora" else 0
    if element == ADAPTER_BYTES:
        return 4.0 * (4 * width + 3 * queries + 2 * keys + 4 * ffn) + ranks + 8
    return 12.0 * width + 6 * queries + 4 * keys + 8 * ffn + ranks + 8


def _kept_per_token(shape: ModelShape, policy: PolicyConfig, update: LearnerKnobs, element: int) -> float:
    """Return, over all layers, what their backward passes need, or with checkpointing their inputs."""
    each = shape.width * element if update.activation_checkpointing else layer_activations(shape, policy)
    return shape.layers * each


def _head_work(
    shape: ModelShape, policy: PolicyConfig, update: LearnerKnobs, positions: int, policy_tokens: int
) -> float:
    """Return the bytes of a chunk's logits and of the last hidden states.

    The states exist before and after the norm, and for the policy's tokens. A trained head adds its gradient, of all
    chunks so far and of this one.
    """
    bonus = update.loss.entropy_coefficient > 0 if isinstance(update, UpdateConfig) else update.entropy_bonus
    each, element = LOGITS_BYTES + (ENTROPY_BYTES if bonus else 0), DTYPE_BYTES[policy.dtype]
    logits = each * min(update.logprob_chunk, policy_tokens) * shape.vocabulary
    head = 0 if policy.trained == "lora" else 2 * element * shape.vocabulary * shape.width
    return logits + head + shape.width * (positions * 2 * element + policy_tokens * element)


def _layer_work(shape: ModelShape, policy: PolicyConfig, update: LearnerKnobs, element: int) -> float:
    """Return the gradients that exist at one time inside a layer, per token; recomputed tensors are added."""
    again = layer_activations(shape, policy) if update.activation_checkpointing else 0.0
    width, ffn = (12, 4) if element == ADAPTER_BYTES else (7, 3)
    return again + width * shape.width + ffn * shape.feed_forward + 7 * policy.lora.rank * ADAPTER_BYTES


def _folded(shape: ModelShape, policy: PolicyConfig, update: LearnerKnobs) -> float:
    """Return the bytes of matrices W + s BA that a pass keeps, and of one gradient. Only a float32 base is folded."""
    if not update.fold_adapter or policy.trained != "lora" or policy.dtype != "float32":
        return 0.0
    largest = max(inputs * outputs for _, kind in shape.layer_kinds() for inputs, outputs in kind.values())
    return float(ADAPTER_BYTES * (shape.matrix_parameters + largest))


def _gathered(shape: ModelShape) -> int:
    """Return the parameters that a rank holds whole at one time besides its part: embedding, head and two layers."""
    layer = max(sum(inputs * outputs for inputs, outputs in kind.values()) for _, kind in shape.layer_kinds())
    return shape.vocabulary * shape.width * (1 if shape.tied else 2) + 2 * layer


_SERVER_OVERHEAD = 1.2
"""Share of the weights that a server needs besides its key-value cache."""


@dataclass(frozen=True)
class Sharing:
    """The decision for one device."""

    releases_device: bool
    """Whether the servers are stopped around the update."""
    memory_share: float
    """Share of the device's memory that each server may take."""
    reason: str


def choose_sharing(
    config: SharedDevice, *, weights: float, learner: float | None, memory: int, servers: int
) -> Sharing:
    """Decide by bytes: `weights` of a server, the `learner`, and `memory` of the device, which has `servers` on it.

    `weights` and `learner` come from `memory_of(...)`, so that plan and engine decide alike. `learner` None: no update
    will need the device.
    """
    server = _SERVER_OVERHEAD * weights + config.kv_cache_gib * GIB
    needed = servers * server + (learner or 0.0)
    alternate = config.sharing == "alternate" or (config.sharing == "auto" and learner is not None and needed > memory)
    whole = alternate or learner is None
    share = config.memory_share if whole else min(config.memory_share, server / memory)
    mode = "take turns (servers are stopped around the update)" if alternate else "run side by side"
    why = f"both need about {needed / GIB:.1f} GiB of {memory / GIB:.1f} GiB" if learner else "nothing is trained"
    return Sharing(alternate, share, f"rollouts and update {mode}: {config.sharing}, {why}")
