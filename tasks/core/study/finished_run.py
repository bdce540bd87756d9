"""A finished run of a study, read from the working tree in which it ran."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tasks.core.collapse.rules import read_warnings
from tasks.core.config.dag import iteration_key
from tasks.core.config.params import Params, load_params
from tasks.core.config.splits import TEST_SPLITS
from tasks.core.evaluation.scored_rows import outcomes_by_policy
from tasks.core.evaluation.tgc_sgc import Outcome
from tasks.core.policies.selected_policy import read_selection_and_scores
from tasks.core.records.documents import read_document
from tasks.core.records.dotted import dotted_text
from tasks.core.records.layout import Layout
from tasks.core.records.schemas import OUTCOMES, SCORED_ROLLOUTS
from tasks.core.records.scores import Evaluation, TrainingBudget
from tasks.core.records.study import CurvePoint, SplitScore, StudyRun
from tasks.core.records.tables import read_table
from tasks.core.records.training import AdvantageSummary, Metrics, Timings


@dataclass(frozen=True)
class RunLabel:
    """Facts about a run that its working tree does not hold."""

    method: str
    seed: int
    experiment: str
    command: str
    wall_s: float
    cpu_s: float


@dataclass(frozen=True)
class FinishedRun:
    """A run with the outcomes behind its scores."""

    record: StudyRun
    outcomes: Mapping[tuple[str, str], Sequence[Outcome]]
    """By test split and policy (`schemas.BASE_POLICY` or `SELECTED_POLICY`)."""
    knobs: Mapping[str, str]
    """Parameters that may change the meaning of a score, by dotted name."""
    training_budget: Mapping[str, TrainingBudget] = field(default_factory=dict)
    """Scores at the training budget by test split, if requested."""


def read_finished_run(root: Path, label: RunLabel) -> FinishedRun:
    """Read a finished run. Raises ArtifactError or ParamsError naming the missing or broken file."""
    layout, params = Layout(root), load_params(root / "params.yaml")
    selection, scored = read_selection_and_scores(layout)
    scores = dict(zip(TEST_SPLITS, scored, strict=True))
    sampled = list(params.dag.sampled)
    updates = [read_document(layout.metrics(key), Metrics) for key in params.dag.previous]
    record = StudyRun(
        **vars(label),
        selected=selection.iteration,
        dev_tgc=selection.dev_tgc,
        scores={split: SplitScore(tgc=s.tgc, sgc=s.sgc, tasks=s.tasks) for split, s in scores.items()},
        base_scores={split: SplitScore(tgc=s.base_tgc, sgc=s.base_sgc, tasks=s.tasks) for split, s in scores.items()},
        rollouts=sum(read_document(layout.advantage_summary(key), AdvantageSummary).rollouts for key in sampled),
        tokens=sum(read_document(layout.timings(key), Timings).generated_tokens for key in sampled),
        optimizer_steps=sum(update.optimizer_steps for update in updates),
        curve=tuple(_curve(layout, params, updates)),
        warnings=tuple(read_warnings(layout, iteration_key(params.iterations))),
    )
    knobs = params.model_dump(mode="json", include={"world", "collection", "evaluation", "scoring"})
    budgets: dict[str, TrainingBudget] = {
        split: split_scores.training_budget
        for split, split_scores in scores.items()
        if split_scores.training_budget is not None
    }
    return FinishedRun(record, _outcomes(layout), dotted_text(knobs), budgets)


def _curve(layout: Layout, params: Params, updates: Sequence[Metrics]) -> list[CurvePoint]:
    dev = {key: read_document(layout.evaluation(key), Evaluation).tgc for key in params.dag.evaluated}
    returns = {"i000": None} | {
        key: update.mean_return for key, update in zip(params.dag.previous, updates, strict=True)
    }
    return [
        CurvePoint(iteration=int(key[1:]), mean_return=value, dev_tgc=dev.get(key)) for key, value in returns.items()
    ]


def _outcomes(layout: Layout) -> dict[tuple[str, str], list[Outcome]]:
    tables = (read_table(layout.score_rollouts(split), SCORED_ROLLOUTS) for split in TEST_SPLITS)
    return outcomes_by_policy([row for table in tables for row in table.select(OUTCOMES.names).to_pylist()])
