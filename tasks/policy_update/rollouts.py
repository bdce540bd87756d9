"""A rollout as the learner sees it: token ids, those that the policy sampled in which turn, and one advantage."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


@dataclass(frozen=True)
class Rollout:
    """One rollout of T tokens, P of them sampled by the policy."""

    token_ids: NDArray[np.int64]
    """[T]"""
    policy_positions: NDArray[np.int64]
    """[P] positions of the policy's tokens, rising, each at least 1."""
    turns: NDArray[np.int64]
    """[P] assistant turn of each of them."""
    engine_logprobs: NDArray[np.float32]
    """[P] natural log-probs at the sampling temperature, as the engine reported them: those of the behaviour policy."""
    advantage: float
    name: str = ""
    """Task and rollout index, for errors."""

    @property
    def length(self) -> int:
        """Tokens that a forward pass needs: nothing at or after the last sampled token can change its log-prob."""
        return int(self.policy_positions[-1])


def read_rollouts(batch: pa.Table) -> list[Rollout]:
    """The rows of a TRAINING_BATCH table; those in which the policy sampled nothing are left out.

    Raises ValueError naming the row when a first token is marked as sampled: nothing came before it to predict it from.
    """
    columns = [_lists(batch[name]) for name in ("token_ids", "policy_mask", "turn_index", "engine_logprobs")]
    advantages: list[float] = batch["advantage"].to_pylist()
    tasks, indices = batch["task_id"].to_pylist(), batch["rollout_index"].to_pylist()
    names = [f"rollout {index} of {task}" for task, index in zip(tasks, indices, strict=True)]
    rollouts = [_rollout(row, *cells) for row, cells in enumerate(zip(*columns, advantages, names, strict=True))]
    return [rollout for rollout in rollouts if len(rollout.policy_positions)]


def _rollout(
    row: int,
    ids: NDArray[np.int32],
    mask: NDArray[np.bool_],
    turns: NDArray[np.int32],
    logprobs: NDArray[np.float32],
    advantage: float,
    name: str,
) -> Rollout:
    positions = np.flatnonzero(mask)
    if len(positions) and positions[0] == 0:
        raise ValueError(f"row {row}, column policy_mask: the first token is marked as sampled by the policy")
    return Rollout(
        ids.astype(np.int64),
        positions,
        turns[positions].astype(np.int64),
        logprobs[positions],
        advantage,
        name,
    )


def _lists(column: pa.ChunkedArray) -> Sequence[NDArray[np.generic]]:
    """The rows of a list column as arrays (no Python object per token)."""
    return [chunk[row].values.to_numpy(zero_copy_only=False) for chunk in column.chunks for row in range(len(chunk))]
