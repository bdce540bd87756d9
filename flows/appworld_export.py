"""Write score rollouts as AppWorld's experiment outputs, and hold our TGC and SGC against the package's own.

The folder becomes an AppWorld root with experiments/outputs/loopline_SPLIT, on which `appworld evaluate` and `pack`
work; with the other test split exported into it too, so does the leaderboard's `make`.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tasks.core.config.params import Params
from tasks.core.config.splits import Split
from tasks.core.config.world import AppWorldSection
from tasks.core.evaluation.scored_rows import Row, answers, outcomes
from tasks.core.evaluation.tgc_sgc import Outcome, sgc, tgc
from tasks.core.policies.loading import load_chat_format
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import recorded_params
from tasks.core.records.schemas import SCORED_ROLLOUTS
from tasks.core.records.tables import read_table
from tasks.core.worlds.appworld.episode import GAVE_UP
from tasks.core.worlds.appworld.export import PackageScores, export_outputs, package_scores
from tasks.core.worlds.appworld.interpreter import python_executable
from tasks.core.worlds.appworld.root import read_prepared_root


def exported(layout: Layout, split: Split, policy: str, run: int, folder: Path) -> tuple[list[str], bool]:
    """Export, and return the comparison in lines, and whether the package judges as we did.

    Raises ArtifactError, ParamsError, InterpreterUnavailable and EvaluationFailed.
    """
    params = recorded_params(layout)
    rows = read_rows(layout, split, policy, run)
    scores = export(layout, params, split, rows, folder)
    return comparison(rows, scores), not differing(rows, scores)


def read_rows(layout: Layout, split: Split, policy: str, run: int) -> list[Row]:
    """Return the score rollouts of one policy in one run. Raises ArtifactError when there is none."""
    path = layout.score_rollouts(split)
    rows: list[Row] = read_table(path, SCORED_ROLLOUTS).to_pylist()
    chosen = [row for row in rows if row["policy"] == policy and row["evaluation_run"] == run]
    if not chosen:
        raise ArtifactError(f"{path}: no rollouts of the {policy} policy in run {run}")
    return chosen


def export(layout: Layout, params: Params, split: Split, rows: Sequence[Row], folder: Path) -> PackageScores:
    """Write the outputs and let the package judge them. Raises ArtifactError when the run's world is no AppWorld."""
    if not isinstance(params.world, AppWorldSection):
        raise ArtifactError(
            f"the run in data/ is of world.name {params.world.name}; only AppWorld's rollouts can be exported"
        )
    root = read_prepared_root(params.world, layout.world).root
    chat = load_chat_format(layout.base_policy)
    python = python_executable()
    turns = {row["task_id"]: answers(row, chat) for row in rows}
    export_outputs(python, root, split, turns, folder, params.world.code_blocks)
    return package_scores(python, folder, split)


def by_package_rule(row: Row) -> bool:
    """Return whether the recorded tests are a success as the package counts it, however the episode ended."""
    return bool(row["tests_passed"]) and not set(row["tests_failed"]) - {GAVE_UP}


def differing(rows: Sequence[Row], scores: PackageScores) -> list[str]:
    """Return the tasks that the package judges otherwise than our tests did, by its own rule."""
    return [row["task_id"] for row in rows if by_package_rule(row) != scores.successes[row["task_id"]]]


def comparison(rows: Sequence[Row], scores: PackageScores) -> list[str]:
    """Return the comparison in lines: our figures and the package's."""
    strict = outcomes(rows)
    theirs = [replace(one, success=by_package_rule(row)) for one, row in zip(strict, rows, strict=True)]
    differences = differing(rows, scores)
    return [
        f"{len(rows)} tasks            TGC    SGC",
        f"recorded          {_figures(strict)}",
        f"by package's rule {_figures(theirs)}   (an untouched task that was given up can count as solved)",
        f"appworld evaluate {scores.tgc:6.1f} {scores.sgc:6.1f}",
        f"judged otherwise: {', '.join(differences) or 'none'}",
    ]


def _figures(played: Sequence[Outcome]) -> str:
    return f"{tgc(played).value:6.1f} {sgc(played).value:6.1f}"


if __name__ == "__main__":
    from flows.moved import moved

    moved("export appworld")
