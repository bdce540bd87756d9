"""Part of the GPU check: the learner's MFU and peak memory, of Qwen2 of random weights with LoRA r 16, in bfloat16.

    tests/benchmarks/gpu/check.sh mfu

MFU = training_flops (tasks/core/capacity/flops.py: useful work, nothing that is computed again) / seconds of a forward
and backward pass / the device's peak of dense matrix products: the maker's figure for a GPU, and for a CPU the best of
a few products measured here. One rollout fills each pack of 8K, 16K and 32K tokens, a quarter of them the policy's own;
the old log-probs are given. Qwen2.5-32B, whose weights alone take 61 GiB, with activation checkpointing, 7B and 1.5B
with and without. What does not fit, or what no time is left for, is a row that says so. `planned_gib` is what
`loopline plan` counts for the same pack (tasks/core/capacity/memory.py); `held_before_gib` what earlier rows left on
the device, which must be next to nothing for the peak to be the row's own.

The model `toy` runs anywhere. It counts the FLOPs of the real pass with torch's dispatcher (`counted`), causal
attention included, and fails when the formula is off by more than 1%: less than the first layer's frozen q, k and v,
which need no gradient.
"""

import statistics
import time
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM, Qwen2Config

from gpu.device import attempt, find_device, held_bytes, write_part
from gpu.goals import LEARNER_MFU
from tasks.core.capacity.flops import ModelShape, training_flops
from tasks.core.capacity.hardware import GIB
from tasks.core.capacity.memory import learner_memory
from tasks.core.config.policy import LoraSettings, PolicyConfig
from tasks.core.config.update import UpdateConfig
from tasks.core.learner.learner import backward, make_learner
from tasks.core.learner.logprobs import compute_fixed_logprobs
from tasks.core.learner.objective import Objective
from tasks.core.learner.packing import Rollout, pack_rollouts
from tasks.core.policies.loading import trainable_policy
from tasks.core.processes.resources import return_freed_memory

_WIDTHS = {
    "1.5b": (151_936, 1536, 8960, 28, 12, 2),
    "7b": (152_064, 3584, 18_944, 28, 28, 4),
    "32b": (152_064, 5120, 27_648, 64, 40, 8),
    "toy": (2048, 64, 192, 32, 4, 2),
}
_NAMES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
)
SIZES = {name: dict(zip(_NAMES, widths, strict=True)) for name, widths in _WIDTHS.items()}
LONG = (8192, 16_384, 32_768)
TOKENS = {"1.5b": LONG, "7b": LONG, "32b": LONG, "toy": (256, 512)}
CHECKPOINTING = dict.fromkeys(SIZES, (False, True)) | {"32b": (True,)}
"""With and without; without it no GPU of today holds the activations of 32B."""
PEAK = {"H200": 989e12, "H100": 989e12, "A100": 312e12}
"""Dense bfloat16 FLOP/s (NVIDIA's data sheets; H100 and H200: SXM)."""
LORA = LoraSettings(rank=16, alpha=32)
ROUNDS = dict.fromkeys(SIZES, 3) | {"32b": 1}
"""Timed steps after a first one: of a step of ten seconds one."""


def make_policy(name: str, device: torch.device, checkpointing: bool) -> tuple[nn.Module, ModelShape, UpdateConfig]:
    config = Qwen2Config(**SIZES[name], tie_word_embeddings=False, max_position_embeddings=32_768)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    policy = trainable_policy(model.requires_grad_(False).eval(), PolicyConfig(lora=LORA), None, seed=0)
    update = UpdateConfig(activation_checkpointing=checkpointing, tokens_per_pack=max(TOKENS[name]), minibatch=1)
    return make_learner(policy, update).policy, ModelShape.of_config(config.to_dict()), update


def make_rollout(tokens: int, vocabulary: int) -> Rollout:
    """`tokens` positions in turns of 40 sampled tokens after 120 others."""
    random = np.random.default_rng(0)
    sampled = np.array([position for position in range(1, tokens + 1) if position % 160 >= 120])
    sampled = np.append(sampled[sampled < tokens], tokens)
    ids, logprobs = random.integers(0, vocabulary, tokens + 1), np.zeros(len(sampled), np.float32)
    return Rollout(ids, sampled, sampled // 160, logprobs, 1.0)


def cpu_peak() -> float:
    """FLOP/s of the best of a few float32 matrix products."""
    left, right = torch.randn(1024, 1024), torch.randn(1024, 1024)
    best = 0.0
    for _ in range(20):
        begin = time.perf_counter()
        left @ right
        best = max(best, 2 * 1024**3 / (time.perf_counter() - begin))
    return best


def device_peak(device: torch.device) -> tuple[str, float | None]:
    """Name and FLOP/s; None for a GPU that is not known here."""
    if device.type == "cpu":
        torch.set_num_threads(1)
        return "CPU", cpu_peak()
    title = torch.cuda.get_device_name()
    return title, next((value for key, value in PEAK.items() if key in title), None)


def causal_attention(query: Any, key: Any, *_: Any, out_shape: Any = None, **__: Any) -> int:
    batch, heads, tokens, width = query
    return int(4 * batch * heads * width * tokens * (tokens + 1) // 2)


def causal_attention_backward(gradient: Any, query: Any, *_: Any, out_shape: Any = None, **__: Any) -> int:
    return 2 * causal_attention(query, query)


def mfu_row(name: str, tokens: int, device: torch.device, peak: float, checkpointing: bool) -> dict[str, Any]:
    policy, shape, config = make_policy(name, device, checkpointing)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()  # of building the model
    rollouts = [make_rollout(tokens, shape.vocabulary)]
    packs = pack_rollouts(rollouts, [0], config.tokens_per_pack, device)
    objective = Objective.of(config, len(rollouts), temperature=1.0)
    training_packs = compute_fixed_logprobs(policy, packs, rollouts, objective).attach(packs)

    def step() -> float:
        policy.zero_grad(set_to_none=True)
        begin = time.perf_counter()
        backward(policy, training_packs, objective)
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    found: dict[str, Any] = {"tokens": tokens, "activation_checkpointing": checkpointing}
    useful = training_flops(shape, [tokens], len(rollouts[0].policy_positions), LORA)
    if name == "toy" and not checkpointing:
        found["counted"] = round(count(step) / useful, 4)
        assert abs(found["counted"] - 1) < 0.01, found
    step()
    seconds = statistics.median(step() for _ in range(ROUNDS[name]))
    found |= {"mfu": round(useful / seconds / peak, 4), "tokens_per_s": round(tokens / seconds)}
    if device.type == "cuda":
        found["peak_memory_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 1)
    return found


def count(step: Any) -> int:
    """FLOPs as torch's dispatcher sees them; it knows no formula for attention on a CPU."""
    operations = torch.ops.aten
    mapping = {
        operations._scaled_dot_product_flash_attention_for_cpu: causal_attention,
        operations._scaled_dot_product_flash_attention_for_cpu_backward: causal_attention_backward,
    }
    with FlopCounterMode(display=False, custom_mapping=mapping) as counter:
        step()
    return counter.get_total_flops()


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
    return_freed_memory()  # of the row before it
    held = held_bytes(device) / GIB
    found = attempt(lambda: mfu_row(name, tokens, device, peak or 1e15, checkpointing))
    if peak is None and "mfu" in found:
        found["mfu"] = "the card's peak is not known"
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
