"""Workloads of the learner's benchmarks: models with a LoRA adapter that is no longer zero, and rollouts.

`shipped`: the embedded policy and 240 rollouts that it plays in pocketworld. `long`: random weights, a vocabulary of
32,768, and 8 made-up rollouts shaped like AppWorld's: 4,096 to 8,192 tokens, about a quarter of them sampled.
"""

import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from transformers import Qwen2Config, Qwen2ForCausalLM

from tasks.core.config.advantages import AdvantageConfig
from tasks.core.config.params import load_params
from tasks.core.config.policy import LoraSettings, PolicyConfig
from tasks.core.config.world import WorldSection
from tasks.core.engines.transformers.engine import TransformersEngine
from tasks.core.interfaces.world_kind import open_world, prepare_world_folder
from tasks.core.learner.packing import Rollout
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.loading import load_base_model, load_tokenizer, trainable_policy
from tasks.core.rollouts.planning import PlaySettings, draw_tasks, plan_rollouts
from tasks.core.rollouts.playing import play_rollouts
from tasks.core.rollouts.scheduler import CollectionStats

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "data/base_policies/pocket"
POLICY = PolicyConfig(device="cpu")
TASKS, PER_TASK = 40, 6
LONG_VOCABULARY, LONG_ROLLOUTS, LONG_TOKENS = 32_768, 8, (4096, 8192)


def shipped_model() -> nn.Module:
    return _with_adapter(load_base_model(SHIPPED, POLICY))


def long_model() -> nn.Module:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=LONG_VOCABULARY,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        max_position_embeddings=8192,
    )
    return _with_adapter(Qwen2ForCausalLM(config).requires_grad_(False).eval())


def _with_adapter(base: Any) -> nn.Module:
    policy = trainable_policy(base, PolicyConfig(lora=LoraSettings(rank=8, alpha=16)), None, seed=0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in policy.named_parameters():
            if ".lora_B." in name:
                weight.normal_(0, 0.02, generator=generator)
    return policy


def shipped_rollouts() -> list[Rollout]:
    """40 tasks x 6, none stopped early, with their leave-one-out advantages; a rollout's name is its task."""
    collection = load_params(ROOT / "params.yaml").collection.model_copy(update={"early_stop": None})
    engine, chat = TransformersEngine(load_base_model(SHIPPED, POLICY)), ChatFormat(load_tokenizer(SHIPPED))
    with tempfile.TemporaryDirectory() as folder:
        prepare_world_folder(WorldSection.of("pocketworld"), Path(folder) / "world")
        world = open_world(WorldSection.of("pocketworld"), Path(folder) / "world")
    tasks = [task for task in world.tasks("train") if task.difficulty < 3]
    drawn = draw_tasks(tasks, [1.0] * len(tasks), TASKS, seed=0)
    planned = plan_rollouts(drawn, PER_TASK, seed=0)
    rows = play_rollouts(
        world, engine, chat, planned, PlaySettings.of_training(collection), policy=None, stats=CollectionStats()
    )
    world.close()
    returns: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        returns[row["task_id"]].append(row["return"])
    return [_rollout(row, returns[row["task_id"]]) for row in rows if any(row["policy_mask"])]


def _rollout(row: dict[str, Any], group: list[float]) -> Rollout:
    sampled = np.flatnonzero(row["policy_mask"])
    factor = len(group) / (len(group) - 1)
    assert AdvantageConfig().estimator == "leave_one_out"
    return Rollout(
        token_ids=np.array(row["token_ids"]),
        policy_positions=sampled,
        turns=np.array(row["turn_index"])[sampled],
        engine_logprobs=np.array(row["engine_logprobs"], np.float32)[sampled],
        advantage=factor * (row["return"] - float(np.mean(group))),
        name=row["task_id"],
    )


def long_rollouts() -> list[Rollout]:
    random = np.random.default_rng(0)
    return [_long_rollout(random) for _ in range(LONG_ROLLOUTS)]


def _long_rollout(random: np.random.Generator) -> Rollout:
    """A prompt of 500 to 1,000 tokens, then turns of 10 to 60 tokens with observations of 10 to 200 after each."""
    tokens = int(random.integers(*LONG_TOKENS))
    position, sampled, turns = int(random.integers(500, 1000)), [], []
    for turn in range(tokens):
        length = int(random.integers(10, 60))
        if position + length > tokens:
            break
        sampled += range(position, position + length)
        turns += [turn] * length
        position += length + int(random.integers(10, 200))
    ids, logprobs = random.integers(0, LONG_VOCABULARY, position), np.zeros(len(sampled), np.float32)
    return Rollout(ids, np.array(sampled), np.array(turns), logprobs, float(random.normal()))


class Workload(NamedTuple):
    """A model and rollouts to train on, and the settings among which each side's fastest is looked for."""

    policy: Callable[[], nn.Module]
    rollouts: Callable[[], list[Rollout]]
    packs: tuple[int, ...]
    """Positions of the learner's packs."""
    micro_batches: tuple[int, ...]
    """Numbers of rollouts in TRL's."""
    tried_on: int
    """The search is made on so many rollouts."""
    weighed_on: int
    """Memory is measured on so many of the longest rollouts."""
    rounds: int


WORKLOADS = {
    "shipped": Workload(shipped_model, shipped_rollouts, (2048, 4096), (4, 10, 40), 40, 240, 3),
    "long": Workload(long_model, long_rollouts, (8192, 16_384), (1, 2), 2, 2, 2),
}
