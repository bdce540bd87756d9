"""Recorded rollouts as a folder that `datasets.load_dataset` reads, and TRL's trainers as it is.

rollouts/SPLIT.parquet       a row per rollout: messages, return, verdict, tokens and log-probs
preferences/SPLIT.parquet    the best and the worst rollout of a task, where their returns differ
README.md                    the card, which names both to `datasets`
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from huggingface_hub import DatasetCard, DatasetCardData

from tasks.core.exports.messages import Conversations
from tasks.core.interfaces.world import Message
from tasks.core.policies.checkpoint_files import MODEL_CARD
from tasks.core.records.files import ArtifactError, replacing
from tasks.core.records.schemas import SEQUENCES, TOKEN_COLUMNS, VOID_REASONS

_MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_PREFERENCES = pa.schema(
    [
        ("task_id", pa.string()),
        ("prompt", _MESSAGES),
        ("chosen", _MESSAGES),
        ("rejected", _MESSAGES),
        ("chosen_return", pa.float64()),
        ("rejected_return", pa.float64()),
    ]
)
_CARD = Path(__file__).with_name("dataset_card.md")
Row = dict[str, Any]
Parts = tuple[list[Message], list[Message]]
"""A conversation up to the policy's first turn, and from there on."""


@dataclass(frozen=True)
class RolloutSource:
    """Rollouts of one policy."""

    name: str
    """The name of the export: an iteration ("i003") or a split."""
    split: str
    """Its split in the dataset; "train" for an iteration."""
    table: pa.Table
    world: str
    model: str


@dataclass(frozen=True)
class ExportedRollouts:
    """The counts of what an export holds."""

    rollouts: int
    preferences: int
    void: int
    """Rollouts that the world broke or that an early stop cut. They have no verdict and are left out."""


def export_rollouts(source: RolloutSource, conversations: Conversations, folder: Path) -> ExportedRollouts:
    """Write the dataset into the new folder. Raises ArtifactError where there is no rollout with a verdict."""
    void = pa.array([reason in VOID_REASONS for reason in source.table["end_reason"].to_pylist()], pa.bool_())
    table = source.table.filter(pc.invert(void)) if len(source.table) else source.table
    if not len(table):
        raise ArtifactError(f"{source.name}: no rollouts with a verdict, of {len(source.table)}")
    rows = table.select(["token_ids", "turn_index", SEQUENCES]).to_pylist()
    said = [conversations.parts(row) for row in rows]
    pairs = preferences(table, said)
    counts = ExportedRollouts(len(table), len(pairs), len(source.table) - len(table))
    with replacing(folder) as temporary:
        _write(temporary / "rollouts" / f"{source.split}.parquet", rollouts_table(table, said))
        if pairs:
            file = temporary / "preferences" / f"{source.split}.parquet"
            _write(file, pa.Table.from_pylist(pairs, schema=_PREFERENCES))
        (temporary / MODEL_CARD).write_text(f"{_card(source, counts)}\n", encoding="utf-8")
    return counts


def _card(source: RolloutSource, counts: ExportedRollouts) -> DatasetCard:
    """Return the card in the hub's form, which tells `datasets` which files are what."""
    metadata = DatasetCardData(
        pretty_name=f"{source.model}: {source.name}",
        task_categories=["text-generation", "reinforcement-learning"],
        tags=["loopline", "agent", "trajectories", source.world],
        configs=[
            {
                "config_name": kind,
                "data_files": [{"split": source.split, "path": f"{kind}/{source.split}.parquet"}],
                **({"default": True} if kind == "rollouts" else {}),
            }
            for kind in ("rollouts", *(["preferences"] if counts.preferences else []))
        ],
    )
    card: DatasetCard = DatasetCard.from_template(metadata, template_path=str(_CARD), source=source, counts=counts)
    return card


def rollouts_table(table: pa.Table, said: Sequence[Parts]) -> pa.Table:
    """Return the recorded columns with the messages in front; values per token are at the end, as plain lists."""
    facts = table.drop_columns(list(TOKEN_COLUMNS))
    per_token = table.select(list(TOKEN_COLUMNS)).rename_columns(["token_ids", "policy_mask", "turn_index", "logprobs"])
    columns = {
        "messages": pa.array([[*opening, *played] for opening, played in said], _MESSAGES),
        **{name: facts[name] for name in facts.column_names},
        **{name: per_token[name].cast(pa.list_(per_token[name].type.value_type)) for name in per_token.column_names},
    }
    return pa.table(columns)


def preferences(table: pa.Table, said: Sequence[Parts]) -> list[Row]:
    """Return a pair for each task whose best and worst rollout differ in their return and begin alike.

    Of equal returns, the rollout that comes first in the table stands for them.
    """
    groups: dict[str, list[tuple[float, Parts]]] = {}
    for task, value, parts in zip(table["task_id"].to_pylist(), table["return"].to_pylist(), said, strict=True):
        groups.setdefault(task, []).append((value, parts))
    pairs = []
    for task, group in groups.items():
        better, (prompt, chosen) = max(group, key=lambda one: one[0])
        worse, (other, rejected) = min(group, key=lambda one: one[0])
        if better > worse and prompt == other and chosen and rejected:
            texts = {"prompt": prompt, "chosen": chosen, "rejected": rejected}
            pairs.append({"task_id": task, **texts, "chosen_return": better, "rejected_return": worse})
    return pairs


def _write(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="zstd")
