"""Part of the GPU check: the learner's gradient on this device, in float32 and bfloat16, beside the CPU's in float32.

    tests/benchmarks/gpu/check.sh gradients

`difference` is relative, over all trained weights; `cpu_bfloat16` says how much of it the dtype alone makes.
`first_step_clipped` is the share of importance weights outside the clip range before any step, which must be 0.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import Qwen2Config, Qwen2ForCausalLM

from gpu.device import attempt, find_device, write_part
from tasks.core.config.policy import PolicyConfig
from tasks.core.config.update import UpdateConfig
from tasks.core.learner.learner import backward, make_learner, update
from tasks.core.learner.logprobs import compute_fixed_logprobs
from tasks.core.learner.objective import Objective
from tasks.core.learner.packing import Rollout, pack_rollouts
from tasks.core.policies.loading import trainable_policy, trained_tensors

CONFIG = UpdateConfig(minibatch=8, fold_adapter=False, learning_rate=1e-5)


def make_policy(sizes: dict[str, int], dtype: torch.dtype, device: torch.device) -> nn.Module:
    torch.manual_seed(0)
    config = Qwen2Config(
        **sizes,
        num_attention_heads=sizes["hidden_size"] // 64,
        num_key_value_heads=1,
        tie_word_embeddings=False,
        initializer_range=sizes["hidden_size"] ** -0.5,
    )
    model = Qwen2ForCausalLM(config)
    model.lm_head.weight.data.mul_(5)  # logits up to about 20
    policy = trainable_policy(model.to(dtype).requires_grad_(False).eval(), PolicyConfig(), None, seed=0)
    with torch.no_grad():
        for name, tensor in trained_tensors(policy).items():
            if "lora_B" in name:
                tensor.normal_(0, 0.02)
    return make_learner(policy.to(device), CONFIG).policy


def make_rollouts(count: int, tokens: int, vocabulary: int) -> list[Rollout]:
    """Rollouts of `tokens` / 2 to `tokens` positions; turns of 20 sampled ids after 20 others."""
    random, found = np.random.default_rng(0), []
    for _ in range(count):
        ids = random.integers(0, vocabulary, int(random.integers(tokens // 2, tokens)))
        sampled = np.array([position for position in range(1, len(ids)) if position % 40 >= 20])
        found.append(Rollout(ids, sampled, sampled // 40, np.zeros(len(sampled), np.float32), float(random.normal())))
    return found


def gradient(policy: nn.Module, rollouts: list[Rollout], device: torch.device) -> Tensor:
    """Gradient of the first minibatch, all trained weights in a row, on the CPU in float64."""
    objective = Objective.of(CONFIG, len(rollouts), temperature=1.0)
    packs = pack_rollouts(rollouts, range(len(rollouts)), CONFIG.tokens_per_pack, device)
    policy.zero_grad(set_to_none=True)
    backward(policy, compute_fixed_logprobs(policy, packs, rollouts, objective).attach(packs), objective)
    found = [weight.grad for weight in policy.parameters() if weight.grad is not None]
    return torch.cat([one.flatten() for one in found]).cpu().double()


def main(_: float) -> None:
    device = find_device()
    large = {"vocab_size": 32_768, "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8}
    small = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    sizes, tokens = (large, 400) if device.type == "cuda" else (small, 60)
    rollouts, cpu = make_rollouts(16, tokens, sizes["vocab_size"]), torch.device("cpu")
    expected = gradient(make_policy(sizes, torch.float32, cpu), rollouts, cpu)

    def compare(dtype: torch.dtype, where: torch.device) -> dict[str, Any]:
        found = gradient(make_policy(sizes, dtype, where), rollouts, where)
        return {"difference": float(f"{(found - expected).norm() / expected.norm():.2e}")}

    def first_step() -> dict[str, Any]:
        learner = make_learner(make_policy(sizes, torch.bfloat16, device), CONFIG)
        step = update(learner, rollouts, CONFIG, temperature=1.0, seed=0).steps[0]
        return {"first_step_clipped": step.clipped / step.units, "first_step_kl": step.kl}

    write_part(
        "gradients",
        device,
        {
            **sizes,
            "float32": attempt(lambda: compare(torch.float32, device)),
            "bfloat16": attempt(lambda: compare(torch.bfloat16, device) | first_step()),
            "cpu_bfloat16": attempt(lambda: compare(torch.bfloat16, cpu)),
        },
    )
