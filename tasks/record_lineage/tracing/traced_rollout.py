"""The rollouts that become traces, and the content of a trace. Pure: knows nothing of MLflow."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from tasks.core.records.schemas import SEQUENCES, TOKEN_COLUMNS, VOID_REASONS
from tasks.core.seeding import derive_seed

PROMPT_TAIL = 256
"""Tokens before a turn that its span shows."""


class Decoder(Protocol):
    """The one method needed of `tokenizers.Tokenizer`."""

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str: ...


@dataclass(frozen=True)
class TracedTurn:
    """One assistant turn."""

    prompt_tail: str
    text: str
    began: float
    """Seconds since the epoch, as `ended`: from the request for the turn to the world's answer."""
    ended: float
    failed: bool
    figures: dict[str, Any]
    """Further facts by name; unknown facts are left out."""


@dataclass(frozen=True)
class TracedRollout:
    """One rollout, with the verdict on it."""

    place: str
    """The rollout's place in the report (`rollout_sets.viewer_places`)."""
    row: dict[str, Any]
    """The rollout's columns, except those with a value per token."""
    turns: tuple[TracedTurn, ...]
    digest: str
    """SHA-256 of its tokens and the verdict on it."""

    @property
    def is_void(self) -> bool:
        return self.row["end_reason"] in VOID_REASONS


def drawn_rows(table: pa.Table, count: int, seed: int, name: str) -> list[int]:
    """Draw at most `count` rows of each policy in the set `name`, without replacement; return them in their order."""
    policies = table["policy"].to_pylist() if "policy" in table.column_names else [""] * len(table)
    drawn = []
    for policy in sorted(set(policies)):
        rows = [row for row, player in enumerate(policies) if player == policy]
        drawn += Random(derive_seed(seed, "traces", name, policy)).sample(rows, min(count, len(rows)))
    return sorted(drawn)


def traced_rollout(
    table: pa.Table, row: int, place: str, decoder: Decoder, clock: Sequence[float], otherwise: float
) -> TracedRollout:
    """Return row `row` of a table of rollouts as a traced rollout.

    `clock` holds the times at which the episode was opened and each turn was answered. Where it does not, all turns
    begin and end at the time `otherwise`, and have no `seconds`.
    """
    per_token = ("token_ids", "turn_index", "engine_logprobs")
    ids, turn_index, logprobs = (table[name][row].values.to_numpy() for name in per_token)
    begins = table[SEQUENCES][row].as_py()
    facts = table.drop([*TOKEN_COLUMNS, SEQUENCES]).slice(row, 1).to_pylist()[0]
    count = int(turn_index.max(initial=-1)) + 1
    measured = len(clock) > count
    times = list(pairwise(clock)) if measured else [(otherwise, otherwise)] * count
    turns = []
    for turn in range(count):
        positions = np.flatnonzero(turn_index == turn)
        if not len(positions):  # an engine may sample nothing
            continue
        start, (began, ended) = int(positions[0]), times[turn]
        figures = _figures(facts, turn) | {"tokens": len(positions), "mean_logprob": float(logprobs[positions].mean())}
        begin = max(begin for begin in begins if begin <= start)
        tail = decoder.decode(ids[max(begin, start - PROMPT_TAIL) : start].tolist(), skip_special_tokens=False)
        text = decoder.decode(ids[positions].tolist(), skip_special_tokens=False)
        seconds = {"seconds": round(ended - began, 3)} if measured else {}
        failed = bool(figures.pop("failed", False))
        turns.append(TracedTurn(tail, text, began, ended, failed, {"turn": turn + 1, **figures, **seconds}))
    return TracedRollout(place, facts, tuple(turns), _digest(ids, facts))


def _digest(ids: np.ndarray, facts: dict[str, Any]) -> str:
    verdict = [facts[name] for name in ("return", "success", "end_reason", "tests_passed", "tests_failed")]
    return hashlib.sha256(ids.astype("<i8").tobytes() + json.dumps(verdict).encode()).hexdigest()


def _figures(facts: dict[str, Any], turn: int) -> dict[str, Any]:
    """Return the world's answer to a turn; nothing for a turn over which the world broke."""
    if turn >= len(facts["turns"]):
        return {}
    named = {"turn_rewards": "reward", "turn_progress": "progress"}
    added = {name: facts[column][turn] for column, name in named.items() if column in facts}
    return {**facts["turns"][turn], **added}
