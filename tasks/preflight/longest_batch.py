"""A training batch as long as any can get: what the learner's memory must hold, before a rollout is collected."""

from typing import Any

import numpy as np

from tasks.core.seeding import derive_seed

Row = dict[str, Any]
"""A row of `records.schemas.TRAINING_BATCH`."""


def longest_batch(length: int, rollouts: int, vocabulary: int, turns: int, seed: int) -> list[Row]:
    """`rollouts` rows of random ids whose forward passes have `length` positions each.

    All tokens but the first are the policy's, since those need logits; advantages of both signs, so that gradients are
    not 0.
    """
    return [_row(index, length, vocabulary, turns, derive_seed(seed, index)) for index in range(rollouts)]


def _row(index: int, length: int, vocabulary: int, turns: int, seed: int) -> Row:
    generator = np.random.Generator(np.random.PCG64(seed))
    turn = np.sort(generator.integers(0, turns, length))
    return {
        "task_id": "preflight",
        "rollout_index": index,
        "token_ids": generator.integers(0, vocabulary, length + 1).tolist(),
        "policy_mask": [False] + [True] * length,
        "turn_index": [-1, *turn.tolist()],
        "engine_logprobs": [0.0] + [-1.0] * length,
        "return": 0.0,
        "advantage": 0.5 if index % 2 else -0.5,
    }
