"""The viewer's data: one script per set of rollouts, loaded on demand, and one index of them all."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tasks.core.records.schemas import SEQUENCES, TRAINING_BATCH
from tasks.core.records.sequences import parts
from tasks.core.records.tables import read_table

RolloutKey = tuple[str, int]
"""(task id, index within the task)."""


class Decoder(Protocol):
    """The one method needed of `tokenizers.Tokenizer`."""

    def decode_batch(self, sequences: list[list[int]], skip_special_tokens: bool) -> list[str]: ...


BY_TURN = "differs by turn"
"""Shown in place of a searched rollout's advantage, since its turns occur in pairs both as the better and the worse."""
Advantage = float | str


def read_advantages(batch: Path) -> dict[RolloutKey, Advantage]:
    """Return the advantages of the rollouts that trained, or BY_TURN. Raises ArtifactError."""
    table = read_table(batch, TRAINING_BATCH)
    columns = (table[name].to_pylist() for name in ("task_id", "rollout_index", "advantage"))
    by_rollout: dict[RolloutKey, Advantage] = {}
    for task, index, advantage in zip(*columns, strict=True):
        by_rollout[task, index] = advantage if by_rollout.get((task, index), advantage) == advantage else BY_TURN
    return by_rollout


def index_rows(table: pa.Table, advantages: Mapping[RolloutKey, Advantage], has_batch: bool) -> dict[str, list[Any]]:
    """Return columns of the list of rollouts. `advantage` is null if one did not train; `policy` is the player."""
    names = ("task_id", "difficulty", "rollout_index", "return", "success", "end_reason")
    columns = {name: table[name].to_pylist() for name in names}
    columns["return"] = [round(value, 4) for value in columns["return"]]
    columns["turns"] = pc.list_value_length(table["turns"]).to_pylist()
    if has_batch:
        keys = zip(columns["task_id"], columns["rollout_index"], strict=True)
        raw = [advantages.get(key) for key in keys]
        columns["advantage"] = [round(value, 4) if isinstance(value, float) else value for value in raw]
    if "policy" in table.column_names:
        columns["policy"] = table["policy"].to_pylist()
    return columns


def transcripts(table: pa.Table, decoder: Decoder) -> dict[str, Any]:
    """Return every rollout as segments [turn, number of tokens, text], with its tests.

    `turn` is the agent's turn, or -1 for the world's text. Texts that occur again (a task's prompt) are stored once: a
    segment holds the text's index in `texts`.
    """
    rows = table.select(["token_ids", "turn_index", SEQUENCES]).to_pylist()
    indices: dict[tuple[int, ...], int] = {}
    pieces: list[list[int]] = []
    rollouts = []
    for row in range(table.num_rows):
        segments = []
        for turn, ids in parts(rows[row]):
            index = indices.setdefault(tuple(ids), len(pieces))
            if index == len(pieces):
                pieces.append(ids)
            segments.append([turn, len(ids), index])
        tests = {name: table[f"tests_{name}"][row].as_py() for name in ("passed", "failed")}
        rollouts.append({"segments": segments, **tests, "failed_turns": _failed_turns(table, row)})
    return {"texts": decoder.decode_batch(pieces, skip_special_tokens=False), "rollouts": rollouts}


def _failed_turns(table: pa.Table, row: int) -> list[int]:
    return [number for number, turn in enumerate(table["turns"][row].as_py()) if turn["failed"]]
