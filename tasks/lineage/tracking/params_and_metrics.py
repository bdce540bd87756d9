"""Parameters and figures of a pipeline run, gathered from params and artifacts. Pure: knows nothing of MLflow."""

import hashlib
import json
from pathlib import Path

from tasks.core.config.params import DERIVED_MAPS, Params
from tasks.core.config.policy import PACKAGED
from tasks.core.records.documents import (
    AdvantageSummary,
    Document,
    Evaluation,
    Metrics,
    Scores,
    Selection,
    StageVersions,
    read_document,
)
from tasks.core.records.dotted import dotted, dotted_numbers
from tasks.core.records.layout import Layout
from tasks.core.records.monitoring import CollapseWarning, Monitor
from tasks.lineage.provenance.dvc_lock import SIDE_TASKS


def flat_params(params: Params) -> dict[str, str]:
    """Every parameter by its dotted name; lists as JSON."""
    content = params.model_dump(mode="json", exclude=set(DERIVED_MAPS))
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in dotted(content).items()}


def params_digest(params: Params) -> str:
    """SHA-256 of the parameters (canonical JSON), in hexadecimal."""
    return hashlib.sha256(json.dumps(params.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()


def start_digest(params: Params, layout: Layout) -> str:
    """SHA-256 of the parameters and the stage versions: what a run in progress is found by.

    An unfinished run has no complete dvc.lock yet, so no digest of its results.
    """
    written = read_document(layout.stage_versions, StageVersions).root
    versions = {task: version.digest for task, version in written.items() if task not in SIDE_TASKS}
    return hashlib.sha256(json.dumps([params_digest(params), versions], sort_keys=True).encode()).hexdigest()


def registered_model(params: Params) -> str:
    """The name of the registered model that versions of this world and base model belong to."""
    base = params.policy.source.removeprefix(PACKAGED).partition("==")[0].rstrip("/").rpartition("/")[2]
    return params.lineage.registered_model or f"loopline-{params.world.name}-{base}"


def step_of(key: str) -> int:
    """MLflow's step of an iteration key: 7 for "i007"."""
    return int(key[1:])


def iteration_numbers(layout: Layout, key: str) -> dict[str, float]:
    """Numbers in one iteration's artifacts: update, advantages, warnings; dev scores as `dev.*` where they exist."""
    return {
        **_numbers(layout.advantage_summary(key), AdvantageSummary),
        **_numbers(layout.metrics(key), Metrics),
        **({"warnings": float(len(_warnings(layout, key)))} if layout.monitor(key).exists() else {}),
        **{f"dev.{name}": value for name, value in _numbers(layout.evaluation(key), Evaluation).items()},
    }


def warning_tags(layout: Layout, key: str) -> dict[str, str]:
    """The collapse monitor's warnings of one iteration as tags: {"warning.i007.entropy_fall": evidence}."""
    return {f"warning.{key}.{warning.rule}": warning.evidence for warning in _warnings(layout, key)}


def selection_numbers(layout: Layout) -> dict[str, float]:
    """The selected policy's dev scores, plain and without selection's luck, as `selection.*`."""
    content = read_document(layout.selection, Selection).model_dump(mode="json", exclude={"candidates"})
    return {f"selection.{name}": value for name, value in dotted_numbers(content).items()}


def score_numbers(layout: Layout, split: str) -> dict[str, float]:
    """The final scores of one split as `<split>.*`."""
    return {f"{split}.{name}": value for name, value in _numbers(layout.score(split), Scores).items()}


def _warnings(layout: Layout, key: str) -> list[CollapseWarning]:
    path = layout.monitor(key)
    return read_document(path, Monitor).of(step_of(key)) if path.exists() else []


def _numbers(path: Path, kind: type[Document]) -> dict[str, float]:
    """Nothing where the stage has not run (yet): i000 has no update, not every policy is evaluated."""
    return dotted_numbers(read_document(path, kind).model_dump(mode="json")) if path.exists() else {}
