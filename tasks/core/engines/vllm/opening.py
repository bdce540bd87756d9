"""Opening the vLLM engine that params.yaml asks for."""

import sys
from collections.abc import Sequence
from pathlib import Path

import psutil

from tasks.core.capacity.flops import ModelShape
from tasks.core.capacity.memory import Sharing, choose_sharing, engine_memory, memory_of
from tasks.core.config.policy import PolicyConfig
from tasks.core.config.stage_inputs import MemoryInputs
from tasks.core.engines.vllm.engine import VllmEngine
from tasks.core.engines.vllm.interpreter import vllm_recipe
from tasks.core.engines.vllm.launching import LaunchSpec
from tasks.core.engines.vllm.probe_records import ProbeRecords
from tasks.core.engines.vllm.server_pool import ServerPool
from tasks.core.engines.vllm.server_provider import ExternalServers, OwnServers, ServerProvider
from tasks.core.engines.vllm.settings import LONGEST_START_S, VllmConfig
from tasks.core.interpreters import INTERPRETERS, python_executable
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.checkpoint_files import read_model_config


def open_vllm(
    config: VllmConfig, policy: PolicyConfig, base_policy: Path, chat: ChatFormat, memory: MemoryInputs | None = None
) -> VllmEngine:
    """Return the engine over servers of the base model in `base_policy`; our own start with the first policy.

    `memory` decides what an update will need on our servers' device; None: nothing is trained there.

    Raises InterpreterUnavailable when vLLM can't be installed, ValueError for settings that don't fit each other.
    """
    from tasks.core.policies.loading import device

    kind = device(policy).type
    sharing = _sharing(config, policy, base_policy, kind, learner_bytes(memory, base_policy, kind))
    provider: ServerProvider
    if config.urls:
        provider = ExternalServers(config.urls, LONGEST_START_S)
    else:
        print(f"vLLM: {sharing.reason}", file=sys.stderr)
        provider = OwnServers(launch_specs(config, policy, base_policy, kind, sharing), LONGEST_START_S)
    vocabulary = int(read_model_config(base_policy)["vocab_size"])
    pool = ServerPool(provider, ProbeRecords(base_policy, policy, chat, vocabulary), config)
    return VllmEngine(pool, vocabulary, kind, releases_device=sharing.releases_device and not config.urls)


def launch_specs(
    config: VllmConfig, policy: PolicyConfig, base_policy: Path, kind: str, sharing: Sharing
) -> Sequence[LaunchSpec]:
    """Return how to start each own server; server i gets the GPUs after those of server i - 1.

    Raises ValueError for what vLLM has on GPUs alone.
    """
    if config.batch_invariant and kind != "cuda":
        raise ValueError("engine.vllm.batch_invariant: vLLM has this mode for GPUs alone; set it to false on a CPU")
    python = python_executable(INTERPRETERS, vllm_recipe(kind))
    per_server = config.gpus_per_server
    return [
        LaunchSpec(
            python=python,
            model=base_policy.resolve(),
            device=kind,
            dtype=policy.dtype,
            lora_rank=policy.lora.rank if policy.trained == "lora" else None,
            sequences=config.sequences,
            context_length=config.context_length,
            memory_share=round(sharing.memory_share, 2) if kind == "cuda" else 0.0,
            kv_cache_gib=config.kv_cache_gib,
            cpu_threads=policy.cpu_threads,
            gpus=tuple(range(index * per_server, (index + 1) * per_server)) if kind == "cuda" else (),
            batch_invariant=config.batch_invariant,
            arguments=config.arguments,
        )
        for index in range(config.servers)
    ]


def learner_bytes(memory: MemoryInputs | None, base_policy: Path, kind: str) -> float | None:
    """Return the bytes that updates will need on a device shared with our servers; None for a run without training."""
    return None if memory is None else memory_of(memory, read_model_config(base_policy), kind).learner.total


def _sharing(config: VllmConfig, policy: PolicyConfig, base_policy: Path, kind: str, learner: float | None) -> Sharing:
    spread = config.gpus_per_server if kind == "cuda" else 1
    weights = engine_memory(ModelShape.of_config(read_model_config(base_policy)), policy, spread).loaded
    servers = 1 if kind == "cuda" else config.servers
    return choose_sharing(config, weights=weights, learner=learner, memory=_memory(kind), servers=servers)


def _memory(kind: str) -> int:
    """Return the total bytes of the device that updates use, free or not, so that all stages of a run decide alike."""
    if kind == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(0)[1])
    return int(psutil.virtual_memory().total)
