"""Recorded rollouts as a folder that `datasets.load_dataset` reads, and TRL's trainers as it is.

rollouts/SPLIT.parquet       a row per rollout: messages, return, verdict, tokens and log-probs
preferences/SPLIT.parquet    the best and the worst rollout of a task, where their returns differ
README.md                    the card, which names both to `datasets`

Messages are read from the tokens, along the chat template; thoughts stay in the turns as they were sampled. Special
tokens are inert in what a world says (`ChatFormat.render`), so the template's own text can be told from it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from huggingface_hub import DatasetCard, DatasetCardData

from tasks.core.config.splits import TEST_SPLITS
from tasks.core.interfaces.world import Message
from tasks.core.lineage.params_and_metrics import registered_model
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.checkpoint_files import MODEL_CARD
from tasks.core.records.documents import read_document
from tasks.core.records.files import ArtifactError, replacing
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import of_other_knobs, recorded_params
from tasks.core.records.schemas import BASE_POLICY, ROLLOUTS, SCORED_ROLLOUTS, SEQUENCES, TOKEN_COLUMNS, VOID_REASONS
from tasks.core.records.scores import Selection
from tasks.core.records.sequences import parts
from tasks.core.records.tables import read_table

_Role = Literal["system", "user", "assistant"]
_ROLES: tuple[_Role, ...] = ("system", "user", "assistant", "user")
_MARKS = ("mark-of-system", "mark-of-user", "mark-of-turn", "mark-of-answer")


class Conversations:
    """Rollouts in the tokens of one chat format, as messages."""

    def __init__(self, chat: ChatFormat) -> None:
        self._chat = chat
        said = [_said(role, mark) for role, mark in zip(_ROLES, _MARKS, strict=True)]
        whole = [chat.render(said[first:]) for first in ([0, 1] if chat.takes_system else [1])]
        self._frames = [re.split("|".join(_MARKS), text) for text in whole]
        self._around = {closed: _around_observation(chat, closed) for closed in (True, False)}

    def parts(self, row: dict[str, Any]) -> tuple[list[Message], list[Message]]:
        """Return the messages before the first turn of a rollout; then each turn and what the world said to it."""
        opening: list[Message] = []
        played: list[Message] = []
        closed = False
        for turn, ids in parts(row):
            if turn >= 0:
                played.append(_said("assistant", self._chat.whole_turn(ids)))
                closed = self._chat.closes(ids)
            elif opening:
                played.append(_said("user", self._observation(ids, closed)))
            else:
                opening = self._opening(self._chat.text_with_marks(ids))
        return opening, played

    def _opening(self, text: str) -> list[Message]:
        """Return the messages of an opening with its generation prompt; one of the user where it has another form."""
        for frame in self._frames:
            if (found := _framed(frame, text)) is not None:
                return found
        return [_said("user", text)]

    def _observation(self, ids: Sequence[int], closed: bool) -> str:
        before, after = self._around[closed]
        return self._chat.text_with_marks(ids).removeprefix(before).removesuffix(after)


def _around_observation(chat: ChatFormat, closed: bool) -> tuple[str, str]:
    """Return the text before and after what the world says to a turn that ended with its mark, or without."""
    before, _, after = chat.text_with_marks(chat.continuation_ids(_MARKS[1], closed=closed)).partition(_MARKS[1])
    return before, after


def _framed(frame: Sequence[str], text: str) -> list[Message] | None:
    """Return the messages of a text; None where it is framed otherwise.

    `frame`: the text before the first message, those between two, and the one at the end.
    """
    start, *of_system, to_turn, to_user, end = frame
    if not (text.startswith(start) and text.endswith(end)):
        return None
    rest, found = text[len(start) : len(text) - len(end)], list[Message]()
    for after in of_system:
        content, mark, rest = rest.partition(after)
        if not mark:
            return None
        found.append(_said("system", content))
    pieces = re.split(f"({re.escape(to_turn)}|{re.escape(to_user)})", rest)
    said, marks = pieces[::2], pieces[1::2]
    if marks != [to_user if place % 2 else to_turn for place in range(len(marks))] or len(said) % 2 == 0:
        return None
    return [*found, *(_said("assistant" if place % 2 else "user", piece) for place, piece in enumerate(said))]


def _said(role: _Role, content: str) -> Message:
    return {"role": role, "content": content}


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
    for task, value, told in zip(table["task_id"].to_pylist(), table["return"].to_pylist(), said, strict=True):
        groups.setdefault(task, []).append((value, told))
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


class UnknownRollouts(ValueError):  # noqa: N818
    """No split or iteration of the run has this name; the message lists those that it has."""


def rollouts_of(layout: Layout, name: str, policy: str) -> RolloutSource:
    """Return the rollouts of a split or an iteration; of a split those of the base or of the selected policy.

    Raises UnknownRollouts, ParamsError and ArtifactError.
    """
    params = recorded_params(layout)
    if name in params.dag.sampled:
        made_by = ("search_trees" if name in params.dag.searched else "collect_rollouts"), name
        split, table = "train", read_table(layout.rollouts(name), ROLLOUTS)
    elif name == "dev":
        selected = read_document(layout.selection, Selection).iteration
        key = params.dag.evaluated[0] if policy == BASE_POLICY else selected
        made_by = "evaluate_policy", key
        split, table = "dev", read_table(layout.evaluation_rollouts(key), SCORED_ROLLOUTS)
    elif name in TEST_SPLITS:
        made_by = "score", name
        scored = read_table(layout.score_rollouts(name), SCORED_ROLLOUTS)
        split, table = name, scored.filter(pc.equal(scored["policy"], policy))
    else:
        names = ["dev", *TEST_SPLITS, *params.dag.sampled]
        raise UnknownRollouts(f"{name}: no split or iteration of this run; there are {', '.join(names)}")
    for line in of_other_knobs(layout, [made_by]):
        raise ArtifactError(line)
    return RolloutSource(name, split, table, params.world.name, registered_model(params))
