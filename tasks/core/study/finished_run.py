"""A finished run of a study, read from the working tree in which it ran."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.core.config.params import load_params
from tasks.core.config.splits import TEST_SPLITS
from tasks.core.evaluation.scored_rows import outcomes_by_policy
from tasks.core.evaluation.tgc_sgc import Outcome
from tasks.core.policies.selected_policy import read_selection_and_scores
from tasks.core.records.comparison import StudyRun
from tasks.core.records.documents import dotted_text, read_document
from tasks.core.records.layout import Layout
from tasks.core.records.schemas import BASE_POLICY, OUTCOMES, SCORED_ROLLOUTS, SELECTED_POLICY
from tasks.core.records.scores import Evaluation
from tasks.core.records.tables import read_table
from tasks.core.records.training import AdvantageSummary, Metrics


@dataclass(frozen=True)
class RunLabel:
    """Facts about a run that its working tree does not hold."""

    method: str
    seed: int
    command: str
    trained: bool = True


@dataclass(frozen=True)
class FinishedRun:
    """A run with the tasks that it was scored on."""

    record: StudyRun
    tasks: Mapping[str, str]
    """As in `Study`."""
    knobs: Mapping[str, str]
    """Parameters that may change the meaning of a score, by dotted name."""


def read_finished_run(root: Path, label: RunLabel) -> FinishedRun:
    """Read a finished run. Raises ArtifactError or ParamsError naming the missing or broken file."""
    layout, params = Layout(root), load_params(root / "params.yaml")
    selection, _ = read_selection_and_scores(layout)
    outcomes = _outcomes(layout)
    sampled = [read_document(layout.advantage_summary(key), AdvantageSummary) for key in params.dag.sampled]
    updates = [read_document(layout.metrics(key), Metrics) for key in params.dag.previous]
    evaluated = ((key, read_document(layout.evaluation(key), Evaluation)) for key in params.dag.evaluated)
    record = StudyRun(
        **vars(label),
        selected=selection.iteration,
        rollouts=sum(summary.rollouts for summary in sampled),
        optimizer_steps=sum(update.optimizer_steps for update in updates),
        dev_tgc=tuple((int(key[1:]), evaluation.tgc) for key, evaluation in evaluated),
        solved={
            split: {policy: solved_texts(outcomes[split, policy]) for policy in (BASE_POLICY, SELECTED_POLICY)}
            for split in TEST_SPLITS
        },
    )
    tasks = {str(split): " ".join(_names(outcomes[split, SELECTED_POLICY])) for split in TEST_SPLITS}
    knobs = params.model_dump(mode="json", include={"world", "collection", "evaluation", "scoring"})
    return FinishedRun(record, tasks, dotted_text(knobs))


def solved_texts(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Return for each evaluation run a text of 1 and 0, task by task."""
    solved = {(o.evaluation_run, f"{o.scenario_id}/{o.task_id}"): "01"[o.success] for o in outcomes}
    runs = sorted({run for run, _ in solved})
    return tuple("".join(solved[run, name] for name in _names(outcomes)) for run in runs)


def _names(outcomes: Sequence[Outcome]) -> list[str]:
    return sorted({f"{o.scenario_id}/{o.task_id}" for o in outcomes})


def _outcomes(layout: Layout) -> dict[tuple[str, str], list[Outcome]]:
    tables = (read_table(layout.score_rollouts(split), SCORED_ROLLOUTS) for split in TEST_SPLITS)
    return outcomes_by_policy([row for table in tables for row in table.select(OUTCOMES.names).to_pylist()])
