"""select_checkpoint: the best of the policies that were evaluated on dev -> data/selection.json."""

from collections.abc import Sequence
from pathlib import Path

from tasks.core.config.stage_inputs import SelectionInputs
from tasks.core.evaluation.scored_rows import outcomes
from tasks.core.interfaces.stage import StageContext
from tasks.core.policies.checkpoint_files import require_evaluated_policy
from tasks.core.records.documents import (
    Candidate,
    CorrectedSelection,
    Evaluation,
    Selection,
    read_document,
    write_document,
)
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.records.schemas import SCORED_ROLLOUTS
from tasks.core.records.tables import read_table
from tasks.core.seeding import derive_seed
from tasks.select_checkpoint.selection_bias import corrected_scores

OUTCOME_COLUMNS = ["task_id", "scenario_id", "difficulty", "evaluation_run", "success"]


def select_checkpoint(context: StageContext[SelectionInputs]) -> None:
    """Choose among the evaluations of the iterations `evaluated`.

    Raises ArtifactError when one is missing or damaged, or when the winner's weights are not those that were evaluated.
    """
    layout, evaluated = context.layout, context.inputs.evaluated
    standing = candidates(layout, evaluated)
    corrected = corrected_selection(layout, evaluated, derive_seed(context.inputs.seed, "selection"))
    selection = Selection(**best(standing).model_dump(), candidates=tuple(standing), corrected=corrected)
    require_evaluated_policy(layout.policy(selection.iteration), selection)
    write_document(layout.selection, selection)
    luck = f"; {corrected.dev_tgc:.1f} and {corrected.dev_sgc:.1f} without the luck of the choice" if corrected else ""
    print(
        f"select_checkpoint: {selection.iteration}, dev TGC {selection.dev_tgc:.1f}, SGC {selection.dev_sgc:.1f}{luck}"
    )


def candidates(layout: Layout, evaluated: Sequence[str]) -> list[Candidate]:
    """The policies of the iterations `evaluated`, as they scored on dev; other files in the folder are ignored.

    Raises ArtifactError when an evaluation is missing, damaged or that of another iteration.
    """
    return [_candidate(layout.evaluation(key), key) for key in evaluated]


def best(standing: Sequence[Candidate]) -> Candidate:
    """The highest dev TGC; of equals the highest dev SGC; of those the earliest iteration."""
    return min(standing, key=lambda candidate: (-candidate.dev_tgc, -candidate.dev_sgc, candidate.iteration))


def corrected_selection(layout: Layout, evaluated: Sequence[str], seed: int) -> CorrectedSelection | None:
    """Dev scores of the best of these iterations without selection's luck; None where dev has one scenario.

    Raises ArtifactError when rollouts are missing, damaged, or not of the same tasks and runs at every iteration.
    """
    tables = [read_table(layout.evaluation_rollouts(key), SCORED_ROLLOUTS) for key in evaluated]
    try:
        found = corrected_scores([outcomes(table.select(OUTCOME_COLUMNS).to_pylist()) for table in tables], seed)
    except ValueError as error:
        raise ArtifactError(f"{layout.evaluations}: {error}; delete the folder and run `dvc repro`") from None
    if found is None:
        return None
    return CorrectedSelection(
        dev_tgc=found.tgc.value,
        dev_tgc_se=found.tgc.standard_error,
        dev_sgc=found.sgc.value,
        dev_sgc_se=found.sgc.standard_error,
    )


def _candidate(path: Path, key: str) -> Candidate:
    evaluation = read_document(path, Evaluation)
    if evaluation.iteration != key:
        raise ArtifactError(f"{path}: iteration: {evaluation.iteration}, expected {key}; delete it and run `dvc repro`")
    return Candidate(
        iteration=key,
        dev_tgc=evaluation.tgc,
        dev_sgc=evaluation.sgc,
        adapter_digest=evaluation.adapter_digest,
    )
