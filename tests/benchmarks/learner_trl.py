"""TRL's side of learner_vs_trl.py: GRPOTrainer's own loss, its inputs laid out as its trainer lays them out."""

import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from tasks.core.learner.packing import Rollout


def make_trainer(policy: nn.Module, tokenizer: str, batch: int, minibatch: int, checkpointing: bool) -> GRPOTrainer:
    """A trainer with the loss under comparison: per token, mean per rollout, sum over `minibatch`, clip 0.1, no KL."""
    settings = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=minibatch // batch,
        num_generations=2,
        loss_type="grpo",
        epsilon=0.1,
        beta=0.0,
        temperature=1.0,
        gradient_checkpointing=checkpointing,
        use_cpu=True,
        bf16=False,
        report_to=[],
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=policy,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=settings,
        train_dataset=Dataset.from_list([{"prompt": "unused"}] * minibatch),
        processing_class=AutoTokenizer.from_pretrained(tokenizer, local_files_only=True),
    )
    trainer.current_gradient_accumulation_steps = minibatch // batch
    trainer.model.train()
    return trainer


def make_inputs(rollouts: Sequence[Rollout], old: Sequence[Tensor]) -> dict[str, Any]:
    """A micro-batch: prompts padded on the left, completions (environment's tokens and all) on the right."""
    starts = [int(rollout.policy_positions[0]) for rollout in rollouts]
    pairs = list(zip(rollouts, starts, strict=True))
    prompts = [torch.from_numpy(rollout.token_ids[:start]) for rollout, start in pairs]
    # As in the learner, what comes after the last sampled token is left out.
    completions = [torch.from_numpy(rollout.token_ids[start : rollout.length + 1]) for rollout, start in pairs]
    return {
        "prompt_ids": pad_sequence(prompts, batch_first=True, padding_side="left"),
        "prompt_mask": _ones(prompts, "left"),
        "completion_ids": pad_sequence(completions, batch_first=True),
        "completion_mask": _ones(completions, "right"),
        "tool_mask": pad_sequence([_placed(rollout, None) for rollout in rollouts], batch_first=True).long(),
        "old_per_token_logps": pad_sequence(
            [_placed(rollout, before) for rollout, before in zip(rollouts, old, strict=True)], batch_first=True
        ),
        "advantages": torch.tensor([rollout.advantage for rollout in rollouts], dtype=torch.float32),
    }


def _ones(sequences: Sequence[Tensor], side: str) -> Tensor:
    return pad_sequence([torch.ones_like(ids) for ids in sequences], batch_first=True, padding_side=side)


def _placed(rollout: Rollout, values: Tensor | None) -> Tensor:
    """[completion] `values` (None: ones) at the sampled tokens, zeros between."""
    start = int(rollout.policy_positions[0])
    row = torch.zeros(rollout.length + 1 - start)
    row[np.asarray(rollout.policy_positions) - start] = (
        torch.ones(len(rollout.policy_positions)) if values is None else values
    )
    return row


def backward(trainer: GRPOTrainer, rollouts: Sequence[Rollout], old: Sequence[Tensor], batch: int) -> None:
    """Loss and backward of one minibatch, micro-batch by micro-batch."""
    for start in range(0, len(rollouts), batch):
        inputs = make_inputs(rollouts[start : start + batch], old[start : start + batch])
        trainer.compute_loss(trainer.model, inputs).backward()
