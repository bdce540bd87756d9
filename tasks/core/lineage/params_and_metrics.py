"""Parameters and figures of a pipeline run, collected from params and artifacts. Pure: knows nothing of MLflow."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from tasks.core.config.dag import iteration_key, iteration_number
from tasks.core.config.params import Params
from tasks.core.config.policy import PACKAGED
from tasks.core.lineage.dvc_lock import SIDE_TASKS
from tasks.core.records.documents import Document, read_document
from tasks.core.records.dotted import dotted_numbers, dotted_text
from tasks.core.records.layout import Layout
from tasks.core.records.monitoring import CollapseWarning
from tasks.core.records.run_manifest import StageVersions
from tasks.core.records.scores import Evaluation, Scores, Selection, TrainingBudget
from tasks.core.records.training import AdvantageSummary, Metrics


def flat_params(params: Params) -> dict[str, str]:
    """Return every parameter by its dotted name; lists as JSON."""
    return dotted_text(params.model_dump(mode="json", exclude={"dag"}))


def params_digest(params: Params) -> str:
    """Return the SHA-256 of the parameters (canonical JSON), in hexadecimal."""
    return hashlib.sha256(json.dumps(params.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()


def start_digest(params: Params, layout: Layout) -> str:
    """Return the SHA-256 of the parameters and the stage versions, which identifies a run in progress.

    An unfinished run has no complete dvc.lock yet, so no digest of its results.
    """
    written = read_document(layout.stage_versions, StageVersions).root
    versions = {task: version.digest for task, version in written.items() if task not in SIDE_TASKS}
    return hashlib.sha256(json.dumps([params_digest(params), versions], sort_keys=True).encode()).hexdigest()


def registered_model(params: Params) -> str:
    """Return the name of the registered model to which versions of this world and base model belong."""
    base = params.policy.source.removeprefix(PACKAGED).partition("==")[0].rstrip("/").rpartition("/")[2]
    return params.lineage.registered_model or f"loopline-{params.world.name}-{base}"


def iteration_numbers(layout: Layout, key: str, warnings: Iterable[CollapseWarning]) -> dict[str, float]:
    """Return numbers of one iteration: update, advantages, count of the run's `warnings`; dev scores as `dev.*`."""
    counted = [warning for warning in warnings if warning.iteration == iteration_number(key)]
    return {
        **_numbers(layout.advantage_summary(key), AdvantageSummary),
        **_numbers(layout.metrics(key), Metrics),
        **({"warnings": float(len(counted))} if iteration_number(key) else {}),
        **{f"dev.{name}": value for name, value in _numbers(layout.evaluation(key), Evaluation).items()},
    }


def warning_tags(warnings: Iterable[CollapseWarning]) -> dict[str, str]:
    """Return the collapse monitor's warnings as tags: {"warning.i007.entropy_fall": evidence}."""
    return {f"warning.{iteration_key(warning.iteration)}.{warning.rule}": warning.evidence for warning in warnings}


def selection_numbers(layout: Layout) -> dict[str, float]:
    """Return the selected policy's dev scores, plain and without selection's luck, as `selection.*`."""
    content = read_document(layout.selection, Selection).model_dump(mode="json", exclude={"candidates"})
    return {f"selection.{name}": value for name, value in dotted_numbers(content).items()}


def score_numbers(layout: Layout, split: str) -> dict[str, float]:
    """Return the final scores of one split as `<split>.*`."""
    return {f"{split}.{name}": value for name, value in _numbers(layout.score(split), Scores).items()}


def training_budget_numbers(budget: TrainingBudget, split: str) -> dict[str, float]:
    """Return a split's scores at the training budget, and both budgets' limits, as `<split>.training_budget.*`."""
    return {f"{split}.training_budget.{name}": value for name, value in _document_numbers(budget).items()}


def _numbers(path: Path, kind: type[Document]) -> dict[str, float]:
    """Return a document's numbers, or none where its stage has not run: i000, for example, has no update."""
    if not path.exists():
        return {}
    return _document_numbers(read_document(path, kind))


def _document_numbers(document: Document) -> dict[str, float]:
    own_figures = getattr(document, "own", None)
    numbers = dotted_numbers(document.model_dump(mode="json", exclude={"own", "training_budget"}))
    return numbers if own_figures is None else numbers | own_figures.named()
