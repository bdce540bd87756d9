"""`loopline export scores`: scores as a world's own package has them, and its verdicts beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flows.cli.command import command
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout

if TYPE_CHECKING:
    from tasks.core.config.splits import Split
    from tasks.core.evaluation.scored_rows import Row
    from tasks.core.evaluation.tgc_sgc import Outcome
    from tasks.core.interfaces.world_kind import PackageVerdicts


_BY_RULE = "by the package's rule"
TestSplit = Literal["test_normal", "test_challenge"]


@command("export scores", "Serve")
def export_scores(
    world: Annotated[str, typer.Argument(metavar="WORLD", help="The run's world, one that comes from a package.")],
    split: Annotated[TestSplit, typer.Argument(metavar="SPLIT", help="The split whose scores are written.")],
    folder: Annotated[
        Path, typer.Argument(resolve_path=True, help="A new folder; AppWorld adds the other split to its own.")
    ],
    policy: Annotated[Literal["selected", "base"], typer.Option(help="Whose rollouts.")] = "selected",
    run: Annotated[int, typer.Option("--run", min=0, help="Which of the evaluation runs.")] = 0,
) -> int:
    """Write scores as a world's own package has them.

    The package judges the rollouts itself, and its verdicts are printed next to ours. The worlds' pages say what is
    written: an AppWorld root with experiment outputs. Exit code 1: an input is missing, or the package judges a task
    otherwise than we did.

    \b
    loopline export scores appworld test_normal exported
    """
    lines, agrees = exported(Layout(Path.cwd()), world, split, policy, run, folder)
    print("\n".join(lines))
    return 0 if agrees else 1


def exported(layout: Layout, world: str, split: Split, policy: str, run: int, folder: Path) -> tuple[list[str], bool]:
    """Export, and return the comparison in lines, and whether the package judges as we did.

    Raises UnknownKind, ArtifactError, ParamsError, and what the world's export raises.
    """
    from tasks.core.evaluation.scored_rows import answers
    from tasks.core.interfaces.world_kind import ScoredEpisode, ScoredRun, find_world
    from tasks.core.policies.chat_settings import load_chat_format
    from tasks.core.policies.selected_policy import read_selection_and_scores
    from tasks.core.records.run_manifest import recorded_params

    kind, params = find_world(world), recorded_params(layout)
    rows = read_rows(layout, split, policy, run)
    if params.world.name != world:
        raise ArtifactError(f"the run in data/ is of world.name {params.world.name}, not {world}")
    read_selection_and_scores(layout)  # raises where they are of several policies
    chat = load_chat_format(layout.base_policy)
    episodes = [
        ScoredEpisode(
            row["task_id"], tuple(answers(row, chat)), row["success"], row["tests_passed"], row["tests_failed"]
        )
        for row in rows
    ]
    settings, code_blocks = params.world.settings, params.world.code_blocks
    verdicts = kind.export(ScoredRun(settings, code_blocks, layout.world, split, episodes, folder))
    if verdicts is None:
        raise ArtifactError(f"the world {world} comes from no package that would judge its rollouts")
    return comparison(rows, verdicts), not differing(verdicts)


def read_rows(layout: Layout, split: Split, policy: str, run: int) -> list[Row]:
    """Return the score rollouts of one policy in one run. Raises ArtifactError when there is none."""
    from tasks.core.records.schemas import SCORED_ROLLOUTS
    from tasks.core.records.tables import read_table

    path = layout.score_rollouts(split)
    rows: list[Row] = read_table(path, SCORED_ROLLOUTS).to_pylist()
    chosen = [row for row in rows if row["policy"] == policy and row["evaluation_run"] == run]
    if not chosen:
        raise ArtifactError(f"{path}: no rollouts of the {policy} policy in run {run}")
    return chosen


def differing(verdicts: PackageVerdicts) -> list[str]:
    """Return the tasks that the package judges otherwise than we do by its own rule."""
    return [task for task, success in verdicts.ours.items() if success != verdicts.solved[task]]


def comparison(rows: Sequence[Row], verdicts: PackageVerdicts) -> list[str]:
    """Return the comparison in lines: TGC and SGC as recorded, by the package's rule, and by the package."""
    from tasks.core.evaluation.scored_rows import outcomes
    from tasks.core.evaluation.tgc_sgc import sgc, tgc

    recorded = outcomes(rows)
    lines = [f"{f'{len(rows)} tasks':28}    TGC    SGC", f"{'recorded':28} {_figures(recorded)}"]
    if verdicts.rule:
        lines.append(f"{_BY_RULE:28} {_figures(_judged(recorded, verdicts.ours))}   ({verdicts.rule})")
    said = verdicts.figures or (tgc(theirs := _judged(recorded, verdicts.solved)).value, sgc(theirs).value)
    lines.append(f"{verdicts.judge:28} {said[0]:6.1f} {said[1]:6.1f}")
    return [*lines, f"judged otherwise: {', '.join(differing(verdicts)) or 'none'}"]


def _judged(played: Sequence[Outcome], verdicts: Mapping[str, bool]) -> list[Outcome]:
    return [replace(one, success=verdicts[one.task_id]) for one in played]


def _figures(played: Sequence[Outcome]) -> str:
    from tasks.core.evaluation.tgc_sgc import sgc, tgc

    return f"{tgc(played).value:6.1f} {sgc(played).value:6.1f}"
