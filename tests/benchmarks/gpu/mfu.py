"""Part of gpu_check.sh: the learner's MFU and peak memory, of Qwen2 of random weights with LoRA r 16, in bfloat16.

    python tests/benchmarks/gpu_mfu.py [--seconds 180]

As learner_mfu.py measures it, at 8K, 16K and 32K tokens: 1.5B and 7B with and without activation checkpointing, then
Qwen2.5-32B with it, whose weights alone take 61 GiB.
`planned_gib` is what `loopline plan` counts for the same pack (tasks/core/capacity/memory.py). The goal is an MFU
of 0.4. What no time is left for is a row that says so.
"""

import argparse
import time
from typing import Any

from gpu_device import find_device, write_part
from learner_mfu import CHECKPOINTING, LORA, SIZES, TOKENS, device_peak, make_rollout, row
from transformers import Qwen2Config

from tasks.core.capacity.flops import ModelShape
from tasks.core.capacity.hardware import GIB
from tasks.core.capacity.memory import learner_memory
from tasks.core.config.policy import PolicyConfig
from tasks.core.config.update import UpdateConfig


def planned_gib(name: str, tokens: int, checkpointing: bool) -> float:
    config = Qwen2Config(**SIZES[name], tie_word_embeddings=False)
    policy = PolicyConfig(dtype="bfloat16", lora=LORA)
    sampled = len(make_rollout(tokens, config.vocab_size).policy_positions)
    update = UpdateConfig(activation_checkpointing=checkpointing, tokens_per_pack=tokens, minibatch=1)
    return learner_memory(ModelShape.of_config(config.to_dict()), policy, update, tokens, sampled, ranks=1).total / GIB


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure MFU and memory of the learner on a GPU.")
    parser.add_argument("--seconds", type=float, default=180.0)
    deadline = time.monotonic() + parser.parse_args().seconds
    device = find_device()
    title, peak = device_peak(device)
    names = ("1.5b", "7b", "32b") if device.type == "cuda" else ("toy",)
    figures: dict[str, Any] = {"peak_flops": peak, "lora_rank": LORA.rank, "goal": 0.4, "rows": []}
    for name in names:
        for tokens in TOKENS[name] if device.type == "cuda" else TOKENS[name][:1]:
            for checkpointing in CHECKPOINTING[name]:
                late = time.monotonic() > deadline
                # An unknown GPU's share of its peak is not known: its tokens per second are.
                found = {"skipped": "no time left"} if late else row(name, tokens, device, peak or 1e15, checkpointing)
                if peak is None and "mfu" in found:
                    found["mfu"] = f"unknown peak of {title}"
                figures["rows"].append(
                    {"model": name, "tokens": tokens, "activation_checkpointing": checkpointing} | found
                )
                if device.type == "cuda":
                    figures["rows"][-1]["planned_gib"] = round(planned_gib(name, tokens, checkpointing), 1)
        write_part("mfu", device, figures)


if __name__ == "__main__":
    main()
