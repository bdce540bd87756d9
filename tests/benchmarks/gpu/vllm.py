"""Part of gpu_check.sh: log-probs of vLLM, if this interpreter has it, beside the learner's, in bfloat16.

    python tests/benchmarks/gpu_vllm.py

A Qwen2 of random weights with logits up to about 20: vLLM samples one turn after each of a few prompts, the learner
computes the same tokens. The noise to expect is in results/bfloat16_noise.json, heads "bfloat16".
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpu_device import attempt, find_device, write_part
from gpu_gradients import CONFIG
from transformers import Qwen2Config, Qwen2ForCausalLM

from tasks.core.learner.engine_noise import engine_noise
from tasks.core.learner.fixed_logprobs import compute_fixed_logprobs
from tasks.core.learner.learner import make_learner
from tasks.core.learner.metrics import engine_mismatch
from tasks.core.learner.objective import Objective
from tasks.core.learner.packing import pack_rollouts
from tasks.core.learner.rollouts import Rollout

PROMPT, TOKENS, COUNT = 64, 64, 64


def save_model(folder: Path) -> Qwen2ForCausalLM:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=32_768,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=24,
        num_attention_heads=16,
        num_key_value_heads=4,
        tie_word_embeddings=False,
        initializer_range=1 / 32,
        max_position_embeddings=1024,
    )
    model = Qwen2ForCausalLM(config)
    model.lm_head.weight.data.mul_(5)
    model.to(torch.bfloat16).save_pretrained(folder)
    return model


def sample(folder: Path) -> list[Rollout]:
    from vllm import LLM, SamplingParams

    engine = LLM(
        str(folder), skip_tokenizer_init=True, dtype="bfloat16", enforce_eager=True, gpu_memory_utilization=0.4
    )
    random = np.random.default_rng(0)
    prompts = [{"prompt_token_ids": random.integers(0, 32_768, PROMPT).tolist()} for _ in range(COUNT)]
    settings = SamplingParams(temperature=1.0, max_tokens=TOKENS, ignore_eos=True, logprobs=0, detokenize=False, seed=0)
    found = []
    for prompt, answer in zip(prompts, engine.generate(prompts, settings, use_tqdm=False), strict=True):
        (output,) = answer.outputs
        ids = np.array(prompt["prompt_token_ids"] + list(output.token_ids))
        logprobs = [one[token].logprob for one, token in zip(output.logprobs, output.token_ids, strict=True)]
        places = np.arange(PROMPT, len(ids))
        found.append(Rollout(ids, places, np.zeros_like(places), np.array(logprobs, np.float32), 1.0))
    return found


def measure(device: torch.device) -> dict[str, Any]:
    import vllm

    if device.type == "cpu":
        return {"skipped": "no CUDA: tests/benchmarks/vllm_engine.py measures vLLM on a CPU"}
    with tempfile.TemporaryDirectory() as folder:
        model = save_model(Path(folder))
        rollouts = sample(Path(folder))
    policy = make_learner(model.to(device).eval(), CONFIG).policy
    packs = pack_rollouts(rollouts, range(len(rollouts)), CONFIG.tokens_per_pack, device)
    old = compute_fixed_logprobs(policy, packs, rollouts, Objective.of(CONFIG, len(rollouts), 1.0)).old
    return {
        "vllm": vllm.__version__,
        "engine_mismatch": engine_mismatch(rollouts, old, engine_noise(policy).token).model_dump(),
    }


def main() -> None:
    device = find_device()
    write_part("vllm", device, attempt(lambda: measure(device)))


if __name__ == "__main__":
    main()
