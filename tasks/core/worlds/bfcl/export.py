"""Examining recorded episodes with the package's own conversation, evaluation and result files."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tasks.core.confinement.warm_processes import WarmProcess
from tasks.core.interfaces.world import WorldFault
from tasks.core.interfaces.world_kind import PackageVerdicts, ScoredRun, ScoredTrials
from tasks.core.records.files import ArtifactError
from tasks.core.worlds.bfcl.interpreter import python_executable
from tasks.core.worlds.bfcl.pool import BfclPool
from tasks.core.worlds.bfcl.settings import BfclConfig


@dataclass(frozen=True)
class Examined:
    """The package's verdict on an episode."""

    valid: bool
    error: str
    """The package's kind of error; empty if valid."""
    result: list[list[str]] | None
    """The texts of each of the user's turns, as the package records them; None if its loop did not finish."""
    messages: list[dict[str, str]]
    """The whole conversation, as conducted by the package."""


def export(run: ScoredRun[BfclConfig]) -> PackageVerdicts:
    """Have the package converse with the episodes and judge them, and write its result files. Raises WorldFault."""
    require_new(run.folder)
    pool = BfclPool(python_executable())
    try:
        examined = examine(pool, {episode.task_id: episode.turns for episode in run.episodes})
    finally:
        pool.close()
    write_results(run.folder, f"loopline_{run.split}", examined)
    return PackageVerdicts(
        judge="bfcl-eval",
        solved={task: verdict.valid for task, verdict in examined.items()},
        ours={episode.task_id: episode.success for episode in run.episodes},
        groups={task: task.rpartition("_")[0] for task in examined},
    )


def write_trials(trials: ScoredTrials[BfclConfig]) -> None:
    """Write the package's result files of each run of the tasks, as `loopline_run0` and so on. Raises WorldFault."""
    pool = BfclPool(python_executable())
    try:
        for trial in range(trials.trials):
            turns = {episode.task_id: episode.turns for episode in trials.episodes if episode.trial == trial}
            write_results(trials.folder, f"loopline_run{trial}", examine(pool, turns))
    finally:
        pool.close()


def examine(pool: BfclPool, turns: Mapping[str, Sequence[str]]) -> dict[str, Examined]:
    """Recite episodes (task id -> the assistant's turns) to the package. Text that ends its process is invalid.

    Raises WorldFault when no process can be started.
    """
    examined = {}
    process: WarmProcess | None = None
    try:
        for task_id, texts in tqdm(turns.items(), desc="package's evaluation", unit="task", leave=False, disable=None):
            process = process or pool.examiner()
            try:
                examined[task_id] = _examined(pool.ask(process, {"examine": task_id, "turns": list(texts)}))
            except WorldFault as fault:
                process.end()
                process, examined[task_id] = None, Examined(False, str(fault), None, [])
    finally:
        if process is not None:
            process.end()
    return examined


def require_new(folder: Path) -> None:
    """Raises ArtifactError where `folder` exists."""
    if folder.exists():
        raise ArtifactError(f"{folder}: exists already; name a new folder")


def write_results(folder: Path, name: str, examined: Mapping[str, Examined]) -> None:
    """Write the package's result files below `folder`/result/`name`. Raises ArtifactError where those exist."""
    lines: dict[str, list[str]] = {}
    for task_id, verdict in examined.items():
        category = task_id.rpartition("_")[0]
        lines.setdefault(category, []).append(json.dumps({"id": task_id, "result": verdict.result or []}))
    results = folder / "result" / name / "multi_turn"
    require_new(results)
    results.mkdir(parents=True)
    for category, part in lines.items():
        (results / f"BFCL_v4_{category}_result.json").write_text("\n".join(part) + "\n", encoding="utf-8")


def _examined(answer: Mapping[str, Any]) -> Examined:
    return Examined(answer["valid"], answer["error"], answer["result"], answer["messages"])
