"""A rollout as the learner sees it: token ids, which of them the policy sampled in which turn, and advantages."""

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
    """[P] assistant turn of each policy token."""
    engine_logprobs: NDArray[np.float32]
    """[P] natural log-probs at the sampling temperature, as the engine reported them: those of the behaviour policy."""
    advantage: float
    """The advantage of the whole rollout."""
    name: str = ""
    """Task and rollout index, for error messages."""
    turn_advantages: NDArray[np.float64] | None = None
    """[turns] the advantage of each assistant turn, in place of the rollout's."""
    turn_rewards: NDArray[np.float64] | None = None
    """[turns] the world's reward for each assistant turn, in its own unit, where it gives rewards by turn."""
    pair: int | None = None
    """Number of the rollout's pair. In a pair, the rollout of positive advantage is better than that of negative."""

    @property
    def token_advantages(self) -> NDArray[np.float32]:
        """Return the advantage [P] of every policy token."""
        if self.turn_advantages is None:
            return np.full(len(self.policy_positions), self.advantage, dtype=np.float32)
        return self.turn_advantages[self.turns].astype(np.float32)

    @property
    def length(self) -> int:
        """Return how many tokens a forward pass needs: all before the last sampled token, the last to be predicted."""
        return int(self.policy_positions[-1])


def whole_rollout(ids: Sequence[int]) -> Rollout:
    """Return a rollout all of whose tokens but the first are the policy's."""
    count = len(ids) - 1
    return Rollout(
        token_ids=np.array(ids, dtype=np.int64),
        policy_positions=np.arange(1, count + 1),
        turns=np.zeros(count, dtype=np.int64),
        engine_logprobs=np.zeros(count, dtype=np.float32),
        advantage=0.0,
    )


def bundles(rollouts: Sequence[Rollout], chosen: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the rows `chosen` as bundles that go to one pass: a pair (better, worse) or a single row.

    Bundles are in the order in which their first rows come.
    """
    pairs: dict[int, list[int]] = {}
    for row in chosen:
        number = rollouts[row].pair
        pairs.setdefault(-1 - row if number is None else number, []).append(row)
    return [tuple(sorted(rows, key=lambda row: -rollouts[row].advantage)) for rows in pairs.values()]


def read_rollouts(batch: pa.Table) -> list[Rollout]:
    """Return the rows of a TRAINING_BATCH table, without those in which the policy sampled nothing.

    Raises ValueError naming the row when a first token is marked as sampled: no token precedes it that could predict
    it.
    """
    columns = [_lists(batch[name]) for name in ("token_ids", "policy_mask", "turn_index", "engine_logprobs")]
    advantages: list[float] = batch["advantage"].to_pylist()
    tasks, indices = batch["task_id"].to_pylist(), batch["rollout_index"].to_pylist()
    names = [f"rollout {index} of {task}" for task, index in zip(tasks, indices, strict=True)]
    by_turn = [
        _lists(batch[name]) if name in batch.column_names else [None] * len(names)
        for name in ("turn_advantages", "turn_rewards")
    ]
    pairs = batch["pair"].to_pylist() if "pair" in batch.column_names else [None] * len(names)
    cells = zip(*columns, advantages, names, *by_turn, pairs, strict=True)
    rollouts = [_rollout(row, *values) for row, values in enumerate(cells)]
    return [rollout for rollout in rollouts if len(rollout.policy_positions)]


def _rollout(
    row: int,
    ids: NDArray[np.int32],
    mask: NDArray[np.bool_],
    turns: NDArray[np.int32],
    logprobs: NDArray[np.float32],
    advantage: float,
    name: str,
    turn_advantages: NDArray[np.float64] | None,
    turn_rewards: NDArray[np.float64] | None,
    pair: int | None,
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
        turn_advantages,
        turn_rewards,
        pair,
    )


def _lists(column: pa.ChunkedArray) -> Sequence[NDArray[np.generic]]:
    """Return the rows of a list column as arrays (no Python object per token)."""
    return [chunk[row].values.to_numpy(zero_copy_only=False) for chunk in column.chunks for row in range(len(chunk))]
