from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from tasks.core.config.policy import LoraSettings, PolicyConfig
from tasks.core.learner.packing import Rollout
from tasks.core.policies.loading import load_base_model, trainable_policy, trained_tensors
from tests.tiny_models import tiny_qwen2

VOCABULARY = 32


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a tiny Qwen2 with grouped key-value heads, its weights so large that log-probs are far from uniform."""
    folder = tmp_path_factory.mktemp("base")
    model = tiny_qwen2(vocab_size=VOCABULARY, num_attention_heads=4, tie_word_embeddings=True, initializer_range=0.3)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def make_policy(base: Path) -> Callable[..., torch.nn.Module]:
    return partial(_policy, base)


@pytest.fixture(scope="session")
def make_rollouts() -> Callable[..., list[Rollout]]:
    return _rollouts


def policy_config(trained: str, dtype: str) -> PolicyConfig:
    return PolicyConfig(trained=trained, dtype=dtype, lora=LoraSettings(rank=4, alpha=8), device="cpu")


def _policy(
    base: Path, trained: str = "lora", dtype: str = "float32", *, shaken: bool = True, moved: float = 0.0
) -> torch.nn.Module:
    """Return a policy. `shaken`: away from the base, as after training; `moved`: further by so much, as after a few
    steps.
    """
    config = policy_config(trained, dtype)
    policy = trainable_policy(load_base_model(base, config), config, None, seed=3)
    for seed, size in ((1, 0.1 * shaken), (5, moved)):
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for tensor in trained_tensors(policy).values():
                tensor.add_(size * torch.randn(tensor.shape, generator=generator))
    return policy


def _rollouts(count: int, seed: int = 0) -> list[Rollout]:
    """Return rollouts of unequal length with one to three turns of unequal length, and environment tokens between."""
    random = np.random.default_rng(seed)
    return [_rollout(random) for _ in range(count)]


def _rollout(random: np.random.Generator) -> Rollout:
    position, sampled, turns = int(random.integers(2, 7)), [], []
    for turn in range(int(random.integers(1, 4))):
        length = int(random.integers(1, 6))
        sampled += range(position, position + length)
        turns += [turn] * length
        position += length + int(random.integers(1, 5))
    return Rollout(
        token_ids=random.integers(0, VOCABULARY, position),
        policy_positions=np.array(sampled),
        turns=np.array(turns),
        engine_logprobs=random.normal(-2, 0.5, len(sampled)).astype(np.float32),
        advantage=float(random.normal()),
    )


def apart(rollout: Rollout) -> Rollout:
    """Return the rollout with a sequence for each turn, all of which repeat what came before."""
    ends = [int(rollout.policy_positions[rollout.turns == turn][-1]) + 1 for turn in np.unique(rollout.turns)]
    begins = [0, *np.cumsum(ends)[:-1].tolist()]
    positions = [
        rollout.policy_positions[rollout.turns == turn] + begin
        for turn, begin in zip(np.unique(rollout.turns), begins, strict=True)
    ]
    ids = np.concatenate([rollout.token_ids[:end] for end in ends])
    return replace(rollout, token_ids=ids, policy_positions=np.concatenate(positions), begins=tuple(begins))
