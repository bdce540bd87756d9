"""The commands `loopline export`: a trained model, recorded rollouts or scores in the forms of other tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flows.cli.command import command, group, refusing
from flows.signals import exit_on_sigterm
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout

if TYPE_CHECKING:
    from tasks.core.config.splits import Split
    from tasks.core.evaluation.scored_rows import Row
    from tasks.core.evaluation.tgc_sgc import Outcome
    from tasks.core.exports.logits_proof import LogitsProof
    from tasks.core.exports.rollout_dataset import ExportedRollouts
    from tasks.core.interfaces.world_kind import PackageVerdicts


@group("export", "Serve")
def export() -> None:
    """Write a trained model, recorded rollouts or scores in the forms of other tools."""


EXPORTS = Path("exports")
"""Where a model goes that was given no folder; ignored by git."""


@command("export model", "Serve")
def export_model(
    folder: Annotated[
        Path | None, typer.Argument(resolve_path=True, help="A new folder; by default one in exports/.")
    ] = None,
    version: Annotated[
        str | None, typer.Option(help="A registered version or alias, in place of the policy selected in this run.")
    ] = None,
    adapter: Annotated[bool, typer.Option("--adapter", help="The adapter alone, without the base's weights.")] = False,
) -> int:
    """Write a trained policy as a model of its own, and prove that it is the policy.

    The folder has the weights with the adapter merged in, the tokenizer, the chat template and a card in the hub's
    form. A fresh process loads it by transformers alone; its logits on recorded conversations must equal base and
    adapter within the rounding of policy.dtype, and differ from the base model by more. Otherwise nothing is written.
    Exit code 1: an input is missing or does not fit, or the proof failed; 2: there is no such version, or the folder
    holds something.

    \b
    loopline export model
    loopline export model trained --version champion
    loopline export model trained --adapter
    """
    from tasks.core.exports.exported_policy import registered_policy, selected_policy
    from tasks.core.exports.model_folder import export_model as write
    from tasks.core.exports.model_folder import require_new
    from tasks.core.records.files import ArtifactError
    from tasks.core.records.layout import Layout
    from tasks.core.registry.model_registry import UnknownVersion

    exit_on_sigterm()
    if folder is not None:
        with refusing(ArtifactError):
            require_new(folder)
    root = Path.cwd()
    source = selected_policy(Layout(root)) if version is None else registered_policy(Layout(root), version)
    with refusing(UnknownVersion), source as (policy, conversations):
        target = folder or root / EXPORTS / f"{policy.name}-{version or policy.iteration}"
        print("\n".join(report_lines(target, write(policy, target, conversations, adapter=adapter))))
    return 0


def report_lines(folder: Path, proof: LogitsProof) -> list[str]:
    """Return where the model is, what was proven, and the command that would share it."""
    ours, base = proof.from_policy, proof.from_base
    return [
        f"{folder}: loaded by transformers alone, {proof.positions} positions of {proof.conversations} conversations",
        f"  logits from base and adapter: {ours.rms:.3g} root mean square, {ours.largest:.3g} at most "
        f"(rounding in {proof.dtype}: up to {proof.limit:.3g})",
        f"  logits from the base model:   {base.rms:.3g} root mean square, {base.largest:.3g} at most",
        f"To share it: hf upload NAMESPACE/{folder.name} {folder}",
    ]


@command("export rollouts", "Serve")
def export_rollouts(
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="A split (dev, test_normal, test_challenge) or an iteration (i003).")
    ],
    folder: Annotated[Path, typer.Argument(resolve_path=True, help="A new folder.")],
    policy: Annotated[Literal["selected", "base"], typer.Option(help="Whose rollouts, of a split.")] = "selected",
) -> int:
    """Write recorded rollouts as a dataset: messages, returns, verdicts, tokens and log-probs.

    The folder is read by `datasets.load_dataset` and by TRL's SFT trainer. A second config, `preferences`, has the best
    and the worst rollout of each task for its DPO trainer. Exit code 1: an input is missing or damaged; 2: there is no
    such split or iteration, or the folder holds something.

    \b
    loopline export rollouts i003 rollouts_i003
    loopline export rollouts test_normal scored --policy base
    """
    from tasks.core.exports.model_folder import require_new
    from tasks.core.exports.rollout_dataset import Conversations, UnknownRollouts, rollouts_of
    from tasks.core.exports.rollout_dataset import export_rollouts as write
    from tasks.core.policies.chat_settings import load_chat_format
    from tasks.core.records.files import ArtifactError
    from tasks.core.records.layout import Layout

    exit_on_sigterm()
    with refusing(ArtifactError):
        require_new(folder)
    layout = Layout(Path.cwd())
    with refusing(UnknownRollouts):
        source = rollouts_of(layout, what, policy)
    print(report_line(folder, write(source, Conversations(load_chat_format(layout.base_policy)), folder)))
    return 0


def report_line(folder: Path, counts: ExportedRollouts) -> str:
    """Return where the dataset is, and how much it holds."""
    void = f", without {counts.void} that have no verdict" if counts.void else ""
    return f"{folder}: {counts.rollouts} rollouts{void}, {counts.preferences} preferences"


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
