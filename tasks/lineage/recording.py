"""Writing a pipeline run to MLflow: while it goes on, and once as a whole. Recording the same run again adds nothing.

`python -m tasks.lineage.recording` records the finished pipeline in the current folder, say after a
server was down.
"""

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.collapse_monitor.watching import read_warnings
from tasks.core.config.params import Params, iteration_key, load_params
from tasks.core.config.splits import TEST_SPLITS
from tasks.core.records.documents import Selection, read_document
from tasks.core.records.layout import Layout
from tasks.core.records.rollout_sets import RolloutSet, rollout_sets
from tasks.lineage.provenance.dvc_lock import DvcLock, read_lock
from tasks.lineage.provenance.git_state import GitState, git_state
from tasks.lineage.registry.registration import log_policy, register, scores_own_weights
from tasks.lineage.registry.version_files import write_version
from tasks.lineage.tracing.recording import TraceRecorder, write_addresses
from tasks.lineage.tracking.mlflow_store import Store, explained, open_store, tracking_uri
from tasks.lineage.tracking.params_and_metrics import (
    flat_params,
    iteration_numbers,
    params_digest,
    registered_model,
    score_numbers,
    selection_numbers,
    start_digest,
    step_of,
    warning_tags,
)

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel


EXPERIMENT = "DVC_EXP_NAME"
"""Variable in which DVC tells a stage the name of its experiment, by which the MLflow run is called too then."""


@dataclass(frozen=True)
class Recorded:
    """Names under which MLflow has a pipeline run."""

    run_id: str
    model_name: str
    model_version: str | None
    """None where the scores are not of the run's own weights: they make no version."""


@dataclass(frozen=True)
class Pipeline:
    """A pipeline run in a working tree."""

    layout: Layout
    params: Params

    @cached_property
    def lock(self) -> DvcLock:
        params = self.params
        maps = (params.previous, params.evaluated, params.collected, params.searched, params.monitored)
        return read_lock(self.layout.root / "dvc.lock", *maps)

    @cached_property
    def selection(self) -> Selection:
        return read_document(self.layout.selection, Selection)

    @cached_property
    def git(self) -> GitState:
        return git_state(self.layout.root)

    @cached_property
    def start_tags(self) -> dict[str, str]:
        """Tags that a run is found by before its results exist."""
        return {"start_digest": start_digest(self.params, self.layout)}

    @property
    def source_tags(self) -> dict[str, str]:
        """Tags that say what the run was made from."""
        return {
            "params_digest": params_digest(self.params),
            "git_commit": self.git.commit,
            "git_dirty": str(self.git.dirty).lower(),
        }

    @property
    def selected_policy(self) -> Path:
        return self.layout.policy(self.selection.iteration)

    @property
    def policy_tags(self) -> dict[str, str]:
        """Tags that lead from a model version back to its artifacts."""
        folder = self.selected_policy.relative_to(self.layout.root).as_posix()
        return {
            **self.source_tags,
            "pipeline_digest": self.lock.digest,
            "iteration": self.selection.iteration,
            "adapter_digest": self.selection.adapter_digest,
            "dvc_path": folder,
            "dvc_md5": self.lock.artifacts.get(folder, ""),
            **{f"dataset.{path}": md5 for path, md5 in self.datasets.items()},
        }

    @property
    def datasets(self) -> dict[str, str]:
        """Artifacts that the policy was trained and scored on, and its base model: path to DVC's md5."""
        layout = self.layout
        scored = [layout.score_rollouts(split) for split in TEST_SPLITS]
        evaluated = layout.evaluation_rollouts(self.selection.iteration)
        paths = [layout.world, layout.base_policy, layout.tasks, evaluated, *scored]
        names = [path.relative_to(layout.root).as_posix() for path in paths]
        return {name: self.lock.artifacts[name] for name in names if name in self.lock.artifacts}

    @property
    def ancestors(self) -> list[str]:
        """md5 of the checkpoints on the way from the base to the selected one, nearest first; the base is none."""
        last = step_of(self.selection.iteration)
        folders = [self.layout.policy(iteration_key(step)) for step in range(last - 1, 0, -1)]
        names = [folder.relative_to(self.layout.root).as_posix() for folder in folders]
        return [self.lock.artifacts[name] for name in names if name in self.lock.artifacts]


def record_iteration(pipeline: Pipeline, key: str, played: Iterable[RolloutSet] = ()) -> None:
    """Add what iteration `key` has to say to the run in progress, and traces of `played`. Raises LineageError.

    Does nothing where the same parameters and code have been recorded to their end already.
    """
    store = open_store(pipeline.params.lineage, pipeline.layout.root)
    with explained(tracking_uri(pipeline.layout.root)):
        if store.find_run(pipeline.start_tags, finished=True) is None:
            run_id = _run_in_progress(store, pipeline)
            found = read_warnings(pipeline.layout, key)
            store.log_numbers(run_id, {step_of(key): iteration_numbers(pipeline.layout, key, found)})
            _set_tags(store, run_id, warning_tags(found))
            _recorder(store, run_id, pipeline).record(played)


def record_pipeline(pipeline: Pipeline) -> Recorded:
    """Record a finished pipeline whole: run, metrics, datasets, scores, model version. Idempotent.

    A run that was recorded while it went on is completed. Raises LineageError when MLflow cannot be reached, and
    ArtifactError when the pipeline is not finished.
    """
    digest = {"pipeline_digest": pipeline.lock.digest}
    store = open_store(pipeline.params.lineage, pipeline.layout.root)
    with explained(tracking_uri(pipeline.layout.root)):
        finished = store.find_run(digest, finished=True)
        run_id = finished.info.run_id if finished else _run_in_progress(store, pipeline)
        name = registered_model(pipeline.params)
        model = version = None
        if scores_own_weights(pipeline.params):
            tags = pipeline.policy_tags
            model = log_policy(store, run_id, step_of(tags["iteration"]), partial(_write_files, pipeline), tags)
            version = str(register(store, name, run_id, model, tags, pipeline.ancestors).version)
        recorded = Recorded(run_id, name, version)
        if not finished:
            _complete(store, pipeline, recorded, model)
        sets = rollout_sets(pipeline.layout, pipeline.params, TEST_SPLITS)
        write_addresses(pipeline.layout.traces, _recorder(store, run_id, pipeline).record(sets))
        return recorded


def _recorder(store: Store, run_id: str, pipeline: Pipeline) -> TraceRecorder:
    return TraceRecorder(store, run_id, pipeline.layout, pipeline.params)


def _write_files(pipeline: Pipeline, folder: Path, model_id: str) -> None:
    iteration = pipeline.selection.iteration
    write_version(folder, pipeline.layout, pipeline.params, iteration, model_id, pipeline.policy_tags)


def _run_in_progress(store: Store, pipeline: Pipeline) -> str:
    """The unfinished run of these parameters and this code; a new one where there is none."""
    from mlflow.entities import Param

    found = store.find_run(pipeline.start_tags, finished=False)
    if found is not None:
        return str(found.info.run_id)
    tags = {**pipeline.start_tags, **pipeline.source_tags, "mlflow.source.git.commit": pipeline.git.commit}
    experiment = os.environ.get(EXPERIMENT)
    name = experiment or f"{pipeline.params.world.name}-{pipeline.start_tags['start_digest'][:8]}"
    tags |= {"dvc_experiment": experiment} if experiment else {}
    run_id = str(store.client.create_run(store.experiment_id, tags=tags, run_name=name).info.run_id)
    params = [Param(key, value) for key, value in flat_params(pipeline.params).items()]
    for start in range(0, len(params), 100):
        store.client.log_batch(run_id, params=params[start : start + 100])
    return run_id


def _complete(store: Store, pipeline: Pipeline, recorded: Recorded, model: "LoggedModel | None") -> None:
    layout, params, run_id = pipeline.layout, pipeline.params, recorded.run_id
    keys = sorted({*params.previous, *params.evaluated})
    found = read_warnings(layout, iteration_key(params.iterations))
    store.log_numbers(run_id, {step_of(key): iteration_numbers(layout, key, found) for key in keys})
    store.log_numbers(run_id, {step_of(pipeline.selection.iteration): selection_numbers(layout)})
    _log_scores(store, pipeline, run_id, model)
    _log_datasets(store, pipeline, run_id)
    tags = {
        **pipeline.policy_tags,
        **({"model_version": f"{recorded.model_name}/{recorded.model_version}"} if model else {}),
        **{f"task_version.{task}": digest for task, digest in pipeline.lock.task_versions.items()},
        **warning_tags(found),
    }
    _set_tags(store, run_id, tags)
    store.client.set_terminated(run_id, "FINISHED")


def _set_tags(store: Store, run_id: str, tags: Mapping[str, str]) -> None:
    for name, value in tags.items():
        store.client.set_tag(run_id, name, value)


def _log_scores(store: Store, pipeline: Pipeline, run_id: str, model: "LoggedModel | None") -> None:
    """Final scores, linked to the model (if they are of one) and to the rollouts that they were counted on."""
    step = step_of(pipeline.selection.iteration)
    for split in TEST_SPLITS:
        path = pipeline.layout.score_rollouts(split).relative_to(pipeline.layout.root).as_posix()
        md5 = pipeline.lock.artifacts[path]
        model_id = model.model_id if model else None
        store.log_model_numbers(run_id, model_id, step, score_numbers(pipeline.layout, split), path, md5)


def _log_datasets(store: Store, pipeline: Pipeline, run_id: str) -> None:
    from tasks.lineage.tracking.dvc_dataset import dvc_inputs

    sources = {**pipeline.lock.sources, **pipeline.lock.artifacts}
    read = [path.relative_to(pipeline.layout.root).as_posix() for path in _inputs(pipeline.layout)]
    data = {path: md5 for path, md5 in sources.items() if path.endswith(".parquet") or path in read}
    store.client.log_inputs(run_id, dvc_inputs({**pipeline.lock.sources, **data}, pipeline.git.commit))


def _inputs(layout: Layout) -> tuple[Path, Path]:
    """Sources of the rollouts: folders beside the tables."""
    return layout.world, layout.base_policy


def main() -> int:
    """Record the finished pipeline in the current folder."""
    root = Path.cwd()
    try:
        recorded = record_pipeline(Pipeline(Layout(root), load_params(root / "params.yaml")))
    except (RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    version = (
        f"model version {recorded.model_name}/{recorded.model_version}" if recorded.model_version else "no version"
    )
    print(f"run {recorded.run_id}, {version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
