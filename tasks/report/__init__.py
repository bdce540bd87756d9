"""The stage report: every artifact of a run -> data/report/, an HTML page that is read offline, and data/summary/."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer

from tasks.core.config.params import Params
from tasks.core.config.splits import SPLITS, TEST_SPLITS
from tasks.core.config.world import WorldConfig
from tasks.core.interfaces.stage import StageContext
from tasks.core.interfaces.world_kind import open_world
from tasks.core.policies.selected_policy import read_selection_and_scores
from tasks.core.records.documents import Document, IterationKey, Percent, Positive, write_document
from tasks.core.records.files import ArtifactError, replacing
from tasks.core.records.layout import Layout
from tasks.core.records.rollout_sets import RolloutSet, rollout_sets, script
from tasks.core.records.schemas import SEQUENCES, TRAINING_BATCH, VOID_REASONS
from tasks.core.records.scores import Scores, Selection
from tasks.core.records.sequences import parts
from tasks.core.records.tables import read_table
from tasks.core.spread import are_equal
from tasks.report.curves import Cell, TaskProgress, lost_skill, read_run_stats
from tasks.report.page import render_page

RolloutKey = tuple[str, int]
"""(task id, index within the task)."""


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


def transcripts(table: pa.Table, decoder: Tokenizer) -> dict[str, Any]:
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
        failed = [number for number, turn in enumerate(table["turns"][row].as_py()) if turn["failed"]]
        rollouts.append({"segments": segments, **tests, "failed_turns": failed})
    return {"texts": decoder.decode_batch(pieces, skip_special_tokens=False), "rollouts": rollouts}


class SplitSummary(Document):
    """summary/<split>.json: few figures, since DVC shows each as a column. scores/<split>.json has all."""

    iteration: IterationKey
    """The iteration that was selected."""
    base_tgc: Percent
    tgc: Percent
    tgc_gain: float
    """Selected minus base, in percentage points."""
    tgc_gain_se: Positive | None
    """Standard error of the paired difference, clustered by scenario. None on dev, where the choice was made."""
    base_sgc: Percent
    sgc: Percent


def write_summaries(layout: Layout, selection: Selection, scores: list[Scores]) -> None:
    """Write one summary for dev and one for each test split, in the order of TEST_SPLITS."""
    write_document(layout.summary("dev"), summary_of_dev(selection))
    for split, scored in zip(TEST_SPLITS, scores, strict=True):
        few = {name: getattr(scored, name) for name in SplitSummary.model_fields}
        write_document(layout.summary(split), SplitSummary(**few))


def summary_of_dev(selection: Selection) -> SplitSummary:
    """Return the figures by which the checkpoint was chosen; the first candidate is the base policy."""
    base = selection.candidates[0]
    return SplitSummary(
        iteration=selection.iteration,
        base_tgc=base.dev_tgc,
        tgc=selection.dev_tgc,
        tgc_gain=selection.dev_tgc - base.dev_tgc,
        tgc_gain_se=None,
        base_sgc=base.dev_sgc,
        sgc=selection.dev_sgc,
    )


def report(context: StageContext[Params]) -> None:
    """Write data/report/: index.html and rollouts/*.js, which it loads when they are asked for; and data/summary/.

    Equal artifacts give equal bytes; wall-clock figures are left out. Raises ArtifactError naming a file that is
    missing, broken or of another policy than the selected one; an older report then stays.
    """
    layout, params = context.layout, context.inputs
    stats = read_run_stats(layout, params)
    selection, scores = read_selection_and_scores(layout)
    warnings = [*stats.warnings, *lost_skill({step: evaluation.tgc for step, evaluation in stats.evaluations.items()})]
    tokenizer = _tokenizer(layout.base_policy / "tokenizer.json")
    instructions = _instructions(params.world, layout.world)
    with replacing(layout.report) as folder:
        (folder / "rollouts").mkdir(parents=True)
        index, progress = _write_rollouts(folder / "rollouts", rollout_sets(layout, params, TEST_SPLITS), tokenizer)
        page = render_page(params, stats, selection, scores, warnings, progress)
        (folder / "rollouts" / "index.js").write_text(instructions + index, encoding="utf-8")
        (folder / "index.html").write_text(page, encoding="utf-8")
    write_summaries(layout, selection, scores)


def _write_rollouts(folder: Path, sets: Iterable[RolloutSet], tokenizer: Tokenizer) -> tuple[str, TaskProgress]:
    """Write one script per set. Return the index of all sets, and the outcome of each training task."""
    index, progress = "", dict[str, dict[int, Cell]]()
    for shown in sets:
        table = shown.read()
        advantages = {} if shown.batch is None else read_advantages(shown.batch)
        content = script("loopline_rollouts", shown.name, transcripts(table, tokenizer))
        (folder / f"{shown.name}.js").write_text(content, encoding="utf-8")
        columns = index_rows(table, advantages, shown.batch is not None)
        index += script("loopline_index", shown.name, {"label": shown.label, "columns": columns})
        if shown.batch is not None:
            for task, cell in _cells(table).items():
                progress.setdefault(task, {})[int(shown.name[1:])] = cell
    return index, sorted(progress.items())


def _cells(table: pa.Table) -> Mapping[str, Cell]:
    """Return cells by task, over the rollouts that are not void."""
    groups: dict[str, list[tuple[float, bool]]] = {}
    columns = (table[name].to_pylist() for name in ("task_id", "return", "success", "end_reason"))
    for task, episode_return, success, reason in zip(*columns, strict=True):
        if reason not in VOID_REASONS:
            groups.setdefault(task, []).append((episode_return, success))
    cells = {}
    for task, rows in groups.items():
        returns, successes = zip(*rows, strict=True)
        cells[task] = Cell(fmean(returns), fmean(successes), len(returns), not are_equal(returns))
    return cells


def _instructions(config: WorldConfig, folder: Path) -> str:
    """Return scripts with the instruction of every task, by split."""
    world = open_world(config, folder)
    try:
        texts = {split: {task.task_id: task.instruction for task in world.tasks(split)} for split in SPLITS}
    finally:
        world.close()
    return "".join(script("loopline_tasks", split, by_task) for split, by_task in texts.items())


def _tokenizer(path: Path) -> Tokenizer:
    if not path.is_file():
        raise ArtifactError(f"{path}: missing; run the stage that writes it (`dvc repro prepare_policy`)")
    return Tokenizer.from_file(str(path))
