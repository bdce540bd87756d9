"""Parameters and figures of a pipeline run, collected from params and artifacts. Pure: knows nothing of MLflow."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from tasks.core.config.dag import iteration_key, iteration_number
from tasks.core.config.params import Params
from tasks.core.config.policy import PACKAGED
from tasks.core.config.splits import TEST_SPLITS
from tasks.core.lineage.dvc_lock import SIDE_TASKS
from tasks.core.policies.checkpoint_files import policy_digest
from tasks.core.records.documents import Document, dotted_numbers, dotted_text, read_document
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import StageVersions
from tasks.core.records.scores import Evaluation, Scores, Selection, TrainingBudget
from tasks.core.records.training import AdvantageSummary, CollapseWarning, Metrics, UpdateTimings


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
    return params.lineage.registered_model or re.sub(r"[^\w.-]+", "-", f"loopline-{params.world.name}-{base}")


def iteration_numbers(layout: Layout, key: str, warnings: Iterable[CollapseWarning]) -> dict[str, float]:
    """Return numbers of one iteration as `rollouts/*`, `update/*` (with the count of the run's `warnings`), `dev/*`.

    MLflow draws a group of charts for each name before a slash.
    """
    counted = [warning for warning in warnings if warning.iteration == iteration_number(key)]
    updated = _numbers(layout.metrics(key), Metrics) | _numbers(layout.update_timings(key), UpdateTimings)
    return {
        **{f"{_group(name)}/{name}": value for name, value in updated.items()},
        **_grouped("rollouts", _numbers(layout.advantage_summary(key), AdvantageSummary)),
        **({"update/warnings": float(len(counted))} if iteration_number(key) else {}),
        **_grouped("dev", _dev_numbers(layout, key)),
    }


def _dev_numbers(layout: Layout, key: str) -> dict[str, float]:
    """Return an evaluation's numbers; none where the policy has been made anew and was not played yet."""
    path = layout.evaluation(key)
    if not path.exists():
        return {}
    evaluation = read_document(path, Evaluation)
    is_of_these_weights = evaluation.adapter_digest == policy_digest(layout.policy(key))
    return _document_numbers(evaluation) if is_of_these_weights else {}


def warning_tags(warnings: Iterable[CollapseWarning]) -> dict[str, str]:
    """Return the collapse monitor's warnings as tags: {"warning.i007.entropy_fall": evidence}."""
    return {f"warning.{iteration_key(warning.iteration)}.{warning.rule}": warning.evidence for warning in warnings}


def selection_numbers(layout: Layout) -> dict[str, float]:
    """Return the selected policy's dev scores, plain and without selection's luck, as `selection/*`."""
    return _grouped("selection", _numbers(layout.selection, Selection))


def score_numbers(layout: Layout, split: str) -> dict[str, float]:
    """Return the final scores of one split as `<split>/*`."""
    return _grouped(split, _numbers(layout.score(split), Scores))


def training_budget_numbers(budget: TrainingBudget, split: str) -> dict[str, float]:
    """Return a split's scores at the training budget as `<split>/training_budget/*`."""
    return _grouped(f"{split}/training_budget", _document_numbers(budget))


def constants(layout: Layout, evaluated: str) -> dict[str, str]:
    """Return what is counted and no result, for MLflow's parameters: each split's tasks and scenarios, and limits.

    `evaluated` is an iteration whose policy played dev.
    """
    documents: dict[str, Document] = {split: read_document(layout.score(split), Scores) for split in TEST_SPLITS}
    documents["dev"] = read_document(layout.evaluation(evaluated), Evaluation)
    return {
        f"{split}/{name.replace('.', '/')}": f"{value:g}"
        for split, document in documents.items()
        for name, value in dotted_numbers(document.model_dump(mode="json")).items()
        if is_constant(name)
    }


def _grouped(group: str, numbers: Mapping[str, float]) -> dict[str, float]:
    return {f"{group}/{name}": value for name, value in numbers.items()}


def _group(name: str) -> str:
    """Return the group of a figure of metrics.json, which repeats some of advantages.json."""
    return "rollouts" if name.partition("/")[0] in AdvantageSummary.model_fields else "update"


def is_constant(name: str) -> bool:
    """Return whether a number of this dotted name is counted or set, and no result."""
    return name.rpartition(".")[2] in ("tasks", "scenarios") or not {"limits", "test_limits"}.isdisjoint(
        name.split(".")
    )


def _numbers(path: Path, kind: type[Document]) -> dict[str, float]:
    """Return a document's numbers, or none where its stage has not run: i000, for example, has no update."""
    if not path.exists():
        return {}
    return _document_numbers(read_document(path, kind))


def _document_numbers(document: Document) -> dict[str, float]:
    own_figures = getattr(document, "own", None)
    numbers = dotted_numbers(document.model_dump(mode="json", exclude={"own", "training_budget"}))
    named = numbers if own_figures is None else numbers | own_figures.named()
    return {name.replace(".", "/"): value for name, value in named.items() if not is_constant(name)}
