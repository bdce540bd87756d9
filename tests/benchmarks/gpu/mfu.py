"""Part of the GPU check: the learner's MFU and peak memory, of Qwen2 of random weights with LoRA r 16, in bfloat16.

    tests/benchmarks/gpu/check.sh mfu

As learner_mfu.py measures it, in packs of 8K, 16K and 32K tokens: Qwen2.5-32B with activation checkpointing, whose
weights alone take 61 GiB, then 7B and 1.5B with and without. `planned_gib` is what `loopline plan` counts for the same
pack (tasks/core/capacity/memory.py); `held_before_gib` what earlier rows left on the device, which must be next to
nothing for the peak to be the row's own. What no time is left for is a row that says so.
"""

import time
from typing import Any

import torch
from transformers import Qwen2Config

from gpu.device import attempt, find_device, held_bytes, write_part
from gpu.goals import LEARNER_MFU
from gpu.learner_mfu import CHECKPOINTING, LORA, SIZES, TOKENS, device_peak, make_rollout, row
from tasks.core.capacity.flops import ModelShape
from tasks.core.capacity.hardware import GIB
from tasks.core.capacity.memory import learner_memory
from tasks.core.config.policy import PolicyConfig
from tasks.core.config.update import UpdateConfig
from tasks.core.processes.resources import return_freed_memory

ROW_S = 20.0
"""With less time than this, no row is begun: one of 32B at 32K takes about as long."""


def planned_gib(name: str, tokens: int, checkpointing: bool) -> float:
    config = Qwen2Config(**SIZES[name], tie_word_embeddings=False)
    policy = PolicyConfig(dtype="bfloat16", lora=LORA)
    sampled = len(make_rollout(tokens, config.vocab_size).policy_positions)
    update = UpdateConfig(activation_checkpointing=checkpointing, tokens_per_pack=tokens, minibatch=1)
    return learner_memory(ModelShape.of_config(config.to_dict()), policy, update, tokens, sampled, ranks=1).total / GIB


def measured(name: str, tokens: int, device: torch.device, peak: float | None, checkpointing: bool) -> dict[str, Any]:
    """Return a row. An unknown GPU's share of its peak is not known: its tokens per second are."""
    return_freed_memory()
    held = held_bytes(device) / GIB
    found = attempt(lambda: row(name, tokens, device, peak or 1e15, checkpointing))
    if peak is None and "mfu" in found:
        found["mfu"] = "the card's peak is not known (learner_mfu.py)"
    if device.type == "cuda":
        found |= {"planned_gib": round(planned_gib(name, tokens, checkpointing), 1), "held_before_gib": round(held, 2)}
    return found


def cases(device: torch.device) -> list[tuple[str, int, bool]]:
    """Return model, tokens and checkpointing of each row, what the goal is about first."""
    if device.type == "cpu":
        return [("toy", TOKENS["toy"][0], checkpointing) for checkpointing in CHECKPOINTING["toy"]]
    names = ("32b", "7b", "1.5b")
    return [
        (name, tokens, checkpointing)
        for tokens in TOKENS["32b"]
        for name in names
        for checkpointing in CHECKPOINTING[name]
    ]


def main(seconds: float) -> None:
    deadline, device = time.monotonic() + seconds, find_device()
    _, peak = device_peak(device)
    figures: dict[str, Any] = {"peak_flops": peak, "lora_rank": LORA.rank, "goal": LEARNER_MFU, "rows": []}
    for name, tokens, checkpointing in cases(device):
        late = device.type == "cuda" and time.monotonic() > deadline - ROW_S
        found = {"skipped": "no time left"} if late else measured(name, tokens, device, peak, checkpointing)
        figures["rows"].append({"model": name, "tokens": tokens, "activation_checkpointing": checkpointing} | found)
        write_part("mfu", device, figures)
