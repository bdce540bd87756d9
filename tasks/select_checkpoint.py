"""Stage select_checkpoint: the best of the policies that were evaluated on dev -> data/selection.json."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks.core.config.stage_inputs import SelectionInputs
from tasks.core.evaluation.scored_rows import outcomes
from tasks.core.evaluation.tgc_sgc import Estimate, Outcome, sgc, solved_scenarios, solved_tasks, tgc
from tasks.core.interfaces.stage import StageContext
from tasks.core.policies.selected_policy import require_evaluated_policy
from tasks.core.records.documents import read_document, write_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.records.schemas import SCORED_ROLLOUTS
from tasks.core.records.scores import Candidate, CorrectedSelection, Evaluation, Selection
from tasks.core.records.tables import read_table
from tasks.core.seeding import derive_seed

RESAMPLES = 4000
"""Number of bootstrap draws; the estimate moves by under 0.1 points between seeds at 19 scenarios."""

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class CorrectedScores:
    """Expected TGC and SGC of the chosen policy, corrected for the choice.

    The standard errors are those of the policy's own scores: the spread of the scenarios' values would leave out the
    choice's.
    """

    tgc: Estimate
    sgc: Estimate


def corrected_scores(standing: Sequence[Sequence[Outcome]], seed: int) -> CorrectedScores | None:
    """Return corrected dev scores of the best of `standing`: the outcomes of each candidate, the earliest first.

    None with a single scenario, since none is then left out of a draw. Raises ValueError when the candidates have not
    played the same tasks in the same runs.
    """
    scenarios = sorted({outcome.scenario_id for outcome in standing[0]})
    if len(scenarios) < 2:
        return None
    tasks, played = _counts([solved_tasks(outcomes) for outcomes in standing], scenarios)
    whole, runs = _counts([solved_scenarios(outcomes) for outcomes in standing], scenarios)
    draws = np.random.default_rng(seed).multinomial(len(scenarios), [1 / len(scenarios)] * len(scenarios), RESAMPLES)
    chosen = _choices(draws, tasks, whole)
    best = standing[int(_choices(np.ones((1, len(scenarios)), dtype=np.int64), tasks, whole)[0])]
    return CorrectedScores(
        tgc=Estimate(_expected(draws, chosen, tasks, played), tgc(best).standard_error),
        sgc=Estimate(_expected(draws, chosen, whole, runs), sgc(best).standard_error),
    )


def _counts(solved: Sequence[Mapping[tuple[str | int, ...], bool]], scenarios: Sequence[str]) -> tuple[Counts, Counts]:
    """Return successes [candidates, scenarios] and plays [scenarios]; the scenario comes first in the keys."""
    if any(other.keys() != solved[0].keys() for other in solved):
        raise ValueError("the candidates have not played the same dev tasks in the same evaluation runs")
    column = {scenario: index for index, scenario in enumerate(scenarios)}
    at = [column[str(key[0])] for key in solved[0]]
    successes = [
        np.bincount(at, weights=[candidate[key] for key in solved[0]], minlength=len(scenarios)) for candidate in solved
    ]
    return np.array(successes, dtype=np.int64), np.bincount(at, minlength=len(scenarios))


def _choices(draws: Counts, tasks: Counts, whole: Counts) -> Counts:
    """Return, for each of the draws [draws], the candidate with the most tasks.

    Of equals it is the one with the most whole scenarios, and of those the earliest. All candidates played the same
    tasks, so counts compare as TGC and SGC do, and integers need no rounding.
    """
    solved, scenarios = draws @ tasks.T, draws @ whole.T
    ranked = solved * (int(scenarios.max()) + 1) + scenarios
    best: Counts = np.argmax(ranked, axis=1)
    return best


def _expected(draws: Counts, chosen: Counts, solved: Counts, played: Counts) -> float:
    """Return percent: each scenario's mean, over the draws without it, of what the draw's chosen candidate solved."""
    absent = draws == 0
    left_out = (solved[chosen] * absent).sum(axis=0) / np.maximum(absent.sum(axis=0), 1)
    return float(100 * left_out.sum() / played.sum())


OUTCOME_COLUMNS = ["task_id", "scenario_id", "difficulty", "evaluation_run", "success"]


def select_checkpoint(context: StageContext[SelectionInputs]) -> None:
    """Choose among the evaluations of the iterations `evaluated`.

    Raises ArtifactError when an evaluation is missing or damaged, or when the winner's weights are not those that were
    evaluated.
    """
    layout, evaluated = context.layout, context.inputs.evaluated
    standing = candidates(layout, evaluated)
    corrected = corrected_selection(layout, evaluated, derive_seed(context.inputs.seed, "selection"))
    selection = Selection(**best(standing).model_dump(), candidates=tuple(standing), corrected=corrected)
    require_evaluated_policy(layout.policy(selection.iteration), selection)
    write_document(layout.selection, selection)
    luck = (
        f"; {corrected.dev_tgc:.1f} and {corrected.dev_sgc:.1f} corrected for the luck of the choice"
        if corrected
        else ""
    )
    print(
        f"select_checkpoint: {selection.iteration}, dev TGC {selection.dev_tgc:.1f}, SGC {selection.dev_sgc:.1f}{luck}"
    )


def candidates(layout: Layout, evaluated: Sequence[str]) -> list[Candidate]:
    """Return the policies of the iterations `evaluated` with their dev scores; ignore other files in the folder.

    Raises ArtifactError when an evaluation is missing, damaged or that of another iteration.
    """
    return [_candidate(layout.evaluation(key), key) for key in evaluated]


def best(standing: Sequence[Candidate]) -> Candidate:
    """Return the candidate of highest dev TGC; of equals the highest dev SGC; of those the earliest iteration."""
    return min(standing, key=lambda candidate: (-candidate.dev_tgc, -candidate.dev_sgc, candidate.iteration))


def corrected_selection(layout: Layout, evaluated: Sequence[str], seed: int) -> CorrectedSelection | None:
    """Return dev scores of the best of these iterations without selection's luck; None where dev has one scenario.

    Raises ArtifactError when rollouts are missing, damaged, or not of the same tasks and runs at every iteration.
    """
    tables = [read_table(layout.evaluation_rollouts(key), SCORED_ROLLOUTS) for key in evaluated]
    try:
        corrected = corrected_scores([outcomes(table.select(OUTCOME_COLUMNS).to_pylist()) for table in tables], seed)
    except ValueError as error:
        raise ArtifactError(f"{layout.evaluations}: {error}; delete the folder and run `dvc repro`") from None
    if corrected is None:
        return None
    return CorrectedSelection(
        dev_tgc=corrected.tgc.value,
        dev_tgc_se=corrected.tgc.standard_error,
        dev_sgc=corrected.sgc.value,
        dev_sgc_se=corrected.sgc.standard_error,
    )


def _candidate(path: Path, key: str) -> Candidate:
    evaluation = read_document(path, Evaluation)
    if evaluation.iteration != key:
        raise ArtifactError(f"{path}: iteration: {evaluation.iteration}, expected {key}; delete it and run `dvc repro`")
    return Candidate(
        iteration=key, dev_tgc=evaluation.tgc, dev_sgc=evaluation.sgc, adapter_digest=evaluation.adapter_digest
    )
