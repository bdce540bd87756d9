"""The rollouts that become traces, and what a trace says of them. Pure: knows nothing of MLflow."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from tasks.core.records.schemas import TOKEN_COLUMNS, VOID_REASONS
from tasks.core.seeding import derive_seed

PROMPT_TAIL = 256
"""Tokens before a turn that its span shows."""


class Decoder(Protocol):
    """The one method of `tokenizers.Tokenizer` that is needed."""

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str: ...


@dataclass(frozen=True)
class TracedTurn:
    """One assistant turn."""

    prompt_tail: str
    text: str
    began: float
    """Seconds since the epoch, as `ended`: from asking for the turn until the world's answer."""
    ended: float
    failed: bool
    figures: dict[str, Any]
    """Further facts by name; unknown ones are left out."""


@dataclass(frozen=True)
class TracedRollout:
    """One rollout, with the verdict on it."""

    place: str
    """Where the report shows it (`rollout_sets.viewer_places`)."""
    row: dict[str, Any]
    """Its columns, but for those with a value per token."""
    turns: tuple[TracedTurn, ...]
    digest: str
    """SHA-256 of its tokens and the verdict on it."""

    @property
    def is_void(self) -> bool:
        return self.row["end_reason"] in VOID_REASONS

    @property
    def rationale(self) -> str:
        """The end of the episode, and the requirements that it met and missed, a line each."""
        tests = [f"{name}: {text}" for name in ("failed", "passed") for text in self.row[f"tests_{name}"]]
        return "\n".join([f"ended by {self.row['end_reason']}", *tests])


def drawn_rows(table: pa.Table, count: int, seed: int, name: str) -> list[int]:
    """At most `count` rows of each policy in the set `name`, drawn without replacement, in their order."""
    policies = table["policy"].to_pylist() if "policy" in table.column_names else [""] * len(table)
    drawn = []
    for policy in sorted(set(policies)):
        rows = [row for row, player in enumerate(policies) if player == policy]
        drawn += Random(derive_seed(seed, "traces", name, policy)).sample(rows, min(count, len(rows)))
    return sorted(drawn)


def traced_rollout(
    table: pa.Table, row: int, place: str, decoder: Decoder, clock: Sequence[float], otherwise: float
) -> TracedRollout:
    """Row `row` of a table of rollouts.

    `clock` holds when the episode was opened and when each turn was answered; where it does not, all turns begin and
    end at the time `otherwise`, and have no `seconds`.
    """
    per_token = ("token_ids", "turn_index", "engine_logprobs")
    ids, turn_index, logprobs = (table[name][row].values.to_numpy() for name in per_token)
    facts = table.drop(TOKEN_COLUMNS).slice(row, 1).to_pylist()[0]
    count = int(turn_index.max(initial=-1)) + 1
    measured = len(clock) > count
    times = list(pairwise(clock)) if measured else [(otherwise, otherwise)] * count
    turns = []
    for turn in range(count):
        places = np.flatnonzero(turn_index == turn)
        if not len(places):  # an engine may sample nothing
            continue
        start, (began, ended) = int(places[0]), times[turn]
        figures = _figures(facts, turn) | {"tokens": len(places), "mean_logprob": float(logprobs[places].mean())}
        tail = decoder.decode(ids[max(0, start - PROMPT_TAIL) : start].tolist(), skip_special_tokens=False)
        text = decoder.decode(ids[places].tolist(), skip_special_tokens=False)
        seconds = {"seconds": round(ended - began, 3)} if measured else {}
        failed = bool(figures.pop("failed", False))
        turns.append(TracedTurn(tail, text, began, ended, failed, {"turn": turn + 1, **figures, **seconds}))
    return TracedRollout(place, facts, tuple(turns), _digest(ids, facts))


def _digest(ids: np.ndarray, facts: dict[str, Any]) -> str:
    verdict = [facts[name] for name in ("return", "success", "end_reason", "tests_passed", "tests_failed")]
    return hashlib.sha256(ids.astype("<i8").tobytes() + json.dumps(verdict).encode()).hexdigest()


def _figures(facts: dict[str, Any], turn: int) -> dict[str, Any]:
    """The world's answer to a turn; nothing for one that it broke over."""
    if turn >= len(facts["turns"]):
        return {}
    named = {"turn_rewards": "reward", "turn_progress": "progress"}
    added = {name: facts[column][turn] for column, name in named.items() if column in facts}
    return {**facts["turns"][turn], **added}
