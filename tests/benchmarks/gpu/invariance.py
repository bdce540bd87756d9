"""Part of the GPU check: the same turns by vLLM's batch-invariant mode, eight at once and among many others.

    tests/benchmarks/gpu/check.sh invariance
    tests/benchmarks/gpu/check.sh --cpu invariance     # in little, without the mode, which vLLM has for GPUs alone

`moved`: turns whose ids or log-probs, to the last bit, are others among others than by eight. Without the mode it is
what a server's batches do to a score. `moved_again`: the same by eight, a second time.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from gpu.device import attempt, find_device, write_part
from gpu.mfu import LORA
from gpu.vllm import SMALL, Load, Turn, make_turns, save_model, write_adapter
from tasks.core.config.policy import PolicyConfig
from tasks.core.engines.vllm.engine import VllmEngine, open_vllm
from tasks.core.engines.vllm.settings import VllmConfig
from tasks.core.interfaces.engine import GenerationRequest, SamplingSettings
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.checkpoint_files import read_model_config
from tasks.core.policies.loading import load_tokenizer

FEW = 8
ON_A_GPU, IN_LITTLE = Load(128, 512, 128, 1, FEW), Load(16, 16, 8, 1, FEW)
Sampled = dict[str, tuple[tuple[int, ...], tuple[float, ...]]]


def sampled(engine: VllmEngine, turns: list[Turn]) -> Sampled:
    """Return ids and log-probs of turns that are all sent at once, by their conversation."""
    for turn in turns:
        settings = SamplingSettings(1.0, turn.max_tokens, turn.stop_ids)
        engine.submit(GenerationRequest(turn.conversation, turn.prompt, settings, turn.seed))
    found: Sampled = {}
    while generations := engine.collect():
        found |= {one.sequence_id: (tuple(one.token_ids), tuple(one.logprobs)) for one in generations}
    for turn in turns:
        engine.release(turn.conversation)
    return found


def moved(before: Sampled, after: Sampled) -> int:
    """Return how many turns of `before` have other ids or log-probs in `after`."""
    return sum(after[turn] != answer for turn, answer in before.items())


@contextmanager
def opened(device: torch.device, base: Path, folder: Path, load: Load) -> Iterator[VllmEngine]:
    """Open an engine with an adapter, in the batch-invariant mode where there is a GPU."""
    on_gpu = device.type == "cuda"
    policy = PolicyConfig.model_validate(
        {"device": device.type, "dtype": "bfloat16" if on_gpu else "float32", "lora": LORA}
    )
    servers = VllmConfig(batch_invariant=on_gpu, memory_share=0.35, context_length=2048, sequences=load.conversations)
    write_adapter(base, folder / "adapter", policy)
    engine = open_vllm(servers, policy, base, ChatFormat(load_tokenizer(SMALL)))
    try:
        engine.load_adapter(folder / "adapter")
        yield engine
    finally:
        engine.close()


def measure(device: torch.device, folder: Path) -> dict[str, Any]:
    """Sample eight turns alone, among others and alone again."""
    on_gpu = device.type == "cuda"
    load = ON_A_GPU if on_gpu else IN_LITTLE
    base = save_model(folder / "model") if on_gpu else SMALL
    turns = make_turns(load, int(read_model_config(base)["vocab_size"]), 0)
    with opened(device, base, folder, load) as engine:
        few, among, again = (sampled(engine, some) for some in (turns[:FEW], turns, turns[:FEW]))
        return {"mode": on_gpu, "turns": FEW, "moved": moved(few, among), "moved_again": moved(few, again)}


def main(_: float) -> None:
    device = find_device()
    with tempfile.TemporaryDirectory() as folder:
        write_part("invariance", device, attempt(lambda: measure(device, Path(folder))))
