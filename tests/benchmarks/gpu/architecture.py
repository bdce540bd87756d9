"""Part of the GPU check: preflight's proofs on this device in bfloat16, fused kernels against each model's eager ones.

    tests/benchmarks/gpu/check.sh architecture

Tiny random models, one of each kind of attention that tests/preflight/architectures.py knows: the learner's packed
passes and the engine in this process, with an adapter that is not zero.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gpu.device import find_device, write_part
from tasks.core.config.policy import PolicyConfig
from tasks.core.config.update import UpdateConfig
from tasks.core.learner.distributed import SINGLE
from tasks.core.learner.learner import prepare_forward
from tasks.core.learner.proofs import prove_passes
from tasks.core.policies.loading import load_base_model, trainable_policy
from tasks.preflight.engine_proof import prove_engine
from tests.preflight.architectures import ARCHITECTURES, quiet, write_model

KINDS = ("Qwen2", "Qwen3", "Qwen3.5", "Qwen3-MoE", "Llama", "Mistral", "Gemma 2", "gpt-oss", "Phi-3 and 4", "Mamba 2")
"""Full attention, windows, soft caps, sinks, experts, linear attention and recurrence."""


def proven(prove: Callable[[], object]) -> bool | str:
    """Return whether the proof goes through, or what it says."""
    try:
        prove()
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    return True


def examine(name: str, device: torch.device) -> tuple[bool | str, bool | str]:
    """Return what the proofs say of the learner and of the engine, for one architecture."""
    with tempfile.TemporaryDirectory() as folder:
        base, checkpoint = Path(folder) / "base", Path(folder) / "shaken"
        settings = write_model(ARCHITECTURES[name], Path(folder)).model_dump()
        config = PolicyConfig.model_validate(settings | {"device": device.type, "dtype": "bfloat16"})

        def learner() -> None:
            policy = trainable_policy(load_base_model(base, config), config, checkpoint, seed=0)
            prepare_forward(policy, UpdateConfig(), SINGLE)
            prove_passes(policy, UpdateConfig())

        return proven(learner), proven(lambda: prove_engine(base, config, checkpoint))


def main(_: float) -> None:
    device, figures = find_device(), dict[str, Any](learner={}, engine={})
    quiet()
    for name in KINDS if device.type == "cuda" else KINDS[:2]:
        figures["learner"][name], figures["engine"][name] = examine(name, device)
        write_part("architecture", device, figures)
