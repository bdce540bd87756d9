"""Part of the GPU check: tokens per second of the transformers engine at 64 and 256 conversations.

    tests/benchmarks/gpu/check.sh engine

A Qwen2 of random weights in the shape of 1.5B parameters, in bfloat16: each conversation has a prompt of 512 ids, which
no other shares, and samples one turn. `tokens_per_s` counts sampled ids, prompts' time included.
"""

import time
from typing import Any

import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from gpu.device import attempt, find_device, synchronize, write_part
from gpu.mfu import SIZES
from tasks.core.engines.transformers.engine import TransformersEngine
from tasks.core.interfaces.engine import GenerationRequest, SamplingSettings


def make_engine(name: str, device: torch.device) -> TransformersEngine:
    config = Qwen2Config(**SIZES[name], tie_word_embeddings=False)
    with torch.device(device):
        model = Qwen2ForCausalLM(config).to(torch.bfloat16 if device.type == "cuda" else torch.float32)
    return TransformersEngine(model.requires_grad_(False))


def measure(engine: TransformersEngine, conversations: int, prompt: int, tokens: int, device: torch.device) -> Any:
    random = np.random.default_rng(0)
    engine.load_adapter(None)
    synchronize(device)
    begin, sampled = time.perf_counter(), 0
    for number in range(conversations):
        ids = random.integers(0, 2048, prompt).tolist()
        engine.submit(GenerationRequest(str(number), ids, SamplingSettings(1.0, tokens, ()), seed=number))
    while finished := engine.collect():
        sampled += sum(len(one.token_ids) for one in finished)
    return {"tokens_per_s": round(sampled / (time.perf_counter() - begin), 1), "sampled": sampled}


def main(_: float) -> None:
    device = find_device()
    name, prompt, tokens = ("1.5b", 512, 128) if device.type == "cuda" else ("toy", 8, 2)
    counts = (64, 256) if device.type == "cuda" else (2, 4)
    engine = make_engine(name, device)
    measure(engine, 2, prompt, 2, device)
    rows = {str(count): attempt(lambda count=count: measure(engine, count, prompt, tokens, device)) for count in counts}
    write_part("engine", device, {"model": name, "prompt": prompt, "tokens": tokens, "conversations": rows})
