"""The stage report: every artifact of a run -> data/report/, an HTML page that is read offline, and data/summary/."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean

import pyarrow as pa
from tokenizers import Tokenizer

from tasks.core.config.params import Params
from tasks.core.config.splits import SPLITS, TEST_SPLITS
from tasks.core.config.world import WorldConfig
from tasks.core.interfaces.stage import StageContext
from tasks.core.interfaces.world_kind import open_world
from tasks.core.policies.selected_policy import read_selection_and_scores
from tasks.core.records.files import ArtifactError, replacing
from tasks.core.records.rollout_sets import RolloutSet, rollout_sets, script
from tasks.core.records.schemas import VOID_REASONS
from tasks.core.spread import are_equal
from tasks.report.heat_map import Cell, TaskProgress
from tasks.report.page import render_page
from tasks.report.run_stats import lost_skill, read_run_stats
from tasks.report.summary import write_summaries
from tasks.report.viewer_data import index_rows, read_advantages, transcripts


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
    return {task: _cell(*zip(*rows, strict=True)) for task, rows in groups.items()}


def _cell(returns: tuple[float, ...], successes: tuple[bool, ...]) -> Cell:
    return Cell(fmean(returns), fmean(successes), len(returns), not are_equal(returns))


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
