"""A pipeline run written to MLflow: during the run, and once as a whole. Recording the same run again adds nothing.

`python -m tasks.record_lineage` records the finished pipeline in the current folder, say after a server was down.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.core.collapse.rules import read_warnings
from tasks.core.config.dag import iteration_key, iteration_number
from tasks.core.config.params import Params
from tasks.core.config.splits import TEST_SPLITS
from tasks.core.lineage.dvc_lock import DvcLock, lock_of
from tasks.core.lineage.git_state import GitState, git_state
from tasks.core.lineage.mlflow_store import LineageError, Store, explained, open_store, tracking_uri
from tasks.core.lineage.params_and_metrics import (
    constants,
    flat_params,
    iteration_numbers,
    params_digest,
    registered_model,
    score_numbers,
    selection_numbers,
    start_digest,
    training_budget_numbers,
    warning_tags,
)
from tasks.core.policies.selected_policy import read_selection_and_scores
from tasks.core.processes.running import pipeline_process
from tasks.core.records.documents import read_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.records.rollout_sets import RolloutSet, rollout_sets
from tasks.core.records.run_manifest import RunManifest, StageVersions
from tasks.core.records.scores import Scores, Selection
from tasks.core.registry.model_registry import log_policy, register, scores_own_weights
from tasks.record_lineage.version_files import score_table, write_version

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel, Run

    from tasks.record_lineage.traces import TraceRecorder


@dataclass(frozen=True)
class Pipeline:
    """A pipeline run in a working tree."""

    layout: Layout
    params: Params

    @cached_property
    def lock(self) -> DvcLock:
        return lock_of(self.layout.root, self.params)

    @cached_property
    def selection(self) -> Selection:
        """Return the selection. Raises ArtifactError where weights or scores are not of the policy that it names."""
        selection, _ = read_selection_and_scores(self.layout)
        return selection

    @cached_property
    def git(self) -> GitState:
        return git_state(self.layout.root)

    @cached_property
    def start_tags(self) -> dict[str, str]:
        """Return the tags by which a run is found before its results exist."""
        return {"start_digest": start_digest(self.params, self.layout)}

    @property
    def source_tags(self) -> dict[str, str]:
        """Return the tags that identify the run's inputs."""
        packages = read_document(self.layout.manifest, RunManifest).packages
        return {
            "params_digest": params_digest(self.params),
            "git_commit": self.git.commit,
            "git_dirty": "unknown" if self.git.dirty is None else str(self.git.dirty).lower(),
            **({"packages": " ".join(packages)} if packages else {}),
        }

    @property
    def policy_tags(self) -> dict[str, str]:
        """Return the tags that lead from a model version back to its artifacts."""
        folder = self.layout.policy(self.selection.iteration).relative_to(self.layout.root).as_posix()
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
        """Return the artifacts that the policy was trained and scored on, and its base model: path to DVC's md5."""
        layout = self.layout
        scored = [layout.score_rollouts(split) for split in TEST_SPLITS]
        evaluated = layout.evaluation_rollouts(self.selection.iteration)
        return self._md5s(layout.world, layout.base_policy, layout.tasks, evaluated, *scored)

    @property
    def ancestors(self) -> list[str]:
        """Return md5 of the checkpoints between the base and the selected policy, nearest first, without the base."""
        last = iteration_number(self.selection.iteration)
        return [*self._md5s(*(self.layout.policy(iteration_key(step)) for step in range(last - 1, 0, -1))).values()]

    def _md5s(self, *paths: Path) -> dict[str, str]:
        names = [path.relative_to(self.layout.root).as_posix() for path in paths]
        return {name: self.lock.artifacts[name] for name in names if name in self.lock.artifacts}


def require_as_it_ran(pipeline: Pipeline) -> None:
    """Raise ArtifactError where stages have not run with their present versions: there is no run to record."""
    now = read_document(pipeline.layout.stage_versions, StageVersions).root
    ran = pipeline.lock.task_versions.items()
    if outdated := [f"{task} has not run since" for task, made in ran if task not in now or now[task].digest != made]:
        raise ArtifactError(f"the pipeline is not finished ({', '.join(outdated)}); run `dvc repro`, which records it")


EXPERIMENT = "DVC_EXP_NAME"
"""Variable in which DVC gives a stage the name of its experiment, which the MLflow run then takes too."""


@dataclass(frozen=True)
class Recorded:
    """Names under which MLflow has a pipeline run."""

    run_id: str
    model_name: str
    model_version: str | None
    """None where the scores are not of the run's own weights, so that there is no version."""


def record_iteration(pipeline: Pipeline, key: str, played: Iterable[RolloutSet] = ()) -> None:
    """Add the figures of iteration `key` to the run in progress, and traces of `played`. Raises LineageError.

    Does nothing where a finished run with the same parameters and code is recorded already.
    """
    store = open_store(pipeline.params.lineage, pipeline.layout.root)
    with explained(tracking_uri(pipeline.layout.root)):
        if store.find_run(pipeline.start_tags, finished=True) is None:
            run_id = str(_run_in_progress(store, pipeline).info.run_id)
            warnings = read_warnings(pipeline.layout, key)
            store.log_numbers(run_id, {iteration_number(key): iteration_numbers(pipeline.layout, key, warnings)})
            _set_tags(store, run_id, warning_tags(warnings))
            _recorder(store, run_id, pipeline).record(played)


def record_pipeline(pipeline: Pipeline) -> Recorded:
    """Record a finished pipeline whole: run, metrics, datasets, scores, model version. Idempotent.

    Completes a run that was recorded while it was in progress. Raises LineageError when MLflow cannot be reached, and
    ArtifactError when the pipeline is not finished.
    """
    from tasks.record_lineage.traces import write_addresses

    digest = {"pipeline_digest": pipeline.lock.digest}
    store = open_store(pipeline.params.lineage, pipeline.layout.root)
    with explained(tracking_uri(pipeline.layout.root)):
        finished = store.find_run(digest, finished=True)
        run = finished or _run_in_progress(store, pipeline)
        run_id, tags = str(run.info.run_id), _tags_of(run, pipeline)
        name = registered_model(pipeline.params)
        model = version = None
        if scores_own_weights(pipeline.params):

            def write(folder: Path, model_id: str) -> None:
                write_version(folder, pipeline.layout, pipeline.params, pipeline.selection.iteration, model_id, tags)

            model = log_policy(store, run_id, iteration_number(tags["iteration"]), write, tags)
            version = str(register(store, name, run_id, model, tags, pipeline.ancestors).version)
        recorded = Recorded(run_id, name, version)
        if not finished:
            _complete(store, pipeline, recorded, model, tags)
        sets = rollout_sets(pipeline.layout, pipeline.params, TEST_SPLITS)
        write_addresses(pipeline.layout.traces, _recorder(store, run_id, pipeline, model).record(sets))
        return recorded


@contextmanager
def recordable_later() -> Iterator[None]:
    """Add to a LineageError what was not recorded, and how to record it afterwards."""
    try:
        yield
    except LineageError as error:
        raise LineageError(
            f"{error}. The run is not in MLflow, but dvc.lock and data/ hold all of it: fix this, then run `python -m "
            "tasks.record_lineage`"
        ) from error


def _tags_of(run: "Run", pipeline: Pipeline) -> dict[str, str]:
    """Return the pipeline's tags, with the commit at the run's start: HEAD may have moved since."""
    began = {name: value for name, value in run.data.tags.items() if name in pipeline.source_tags}
    return {**pipeline.policy_tags, **began}


def _recorder(store: Store, run_id: str, pipeline: Pipeline, model: "LoggedModel | None" = None) -> "TraceRecorder":
    from tasks.record_lineage.traces import TraceRecorder

    return TraceRecorder(store, run_id, pipeline.layout, pipeline.params, model.model_id if model else None)


def _run_in_progress(store: Store, pipeline: Pipeline) -> "Run":
    """Return the unfinished run of these parameters and this code, or a new run where there is none."""
    unfinished = store.find_run(pipeline.start_tags, finished=False)
    if unfinished is not None:
        return unfinished
    if pipeline.git.fault:
        print(f"the run is recorded without its commit; git says: {pipeline.git.fault}", file=sys.stderr)
    tags = {**pipeline.start_tags, **pipeline.source_tags, "mlflow.source.git.commit": pipeline.git.commit}
    experiment = os.environ.get(EXPERIMENT)
    name = experiment or f"{pipeline.params.world.name}-{pipeline.start_tags['start_digest'][:8]}"
    tags |= {"dvc_experiment": experiment} if experiment else {}
    began = int(1000 * pipeline_process().started_at)  # recorded at its end, else it would have taken no time
    run = store.client.create_run(store.experiment_id, began, tags, name)
    store.log_params(run.info.run_id, flat_params(pipeline.params))
    return run


def _complete(
    store: Store, pipeline: Pipeline, recorded: Recorded, model: "LoggedModel | None", tags: Mapping[str, str]
) -> None:
    layout, params, run_id = pipeline.layout, pipeline.params, recorded.run_id
    keys = sorted({*params.dag.previous, *params.dag.evaluated})
    warnings = read_warnings(layout, iteration_key(params.iterations))
    store.log_numbers(run_id, {iteration_number(key): iteration_numbers(layout, key, warnings) for key in keys})
    store.log_numbers(run_id, {iteration_number(pipeline.selection.iteration): selection_numbers(layout)})
    _log_scores(store, pipeline, run_id, model)
    store.log_params(run_id, constants(layout, pipeline.selection.iteration))
    _log_datasets(store, pipeline, run_id, tags["git_commit"])
    tags = {
        **tags,
        **({"model_version": f"{recorded.model_name}/{recorded.model_version}"} if model else {}),
        **{f"task_version.{task}": digest for task, digest in pipeline.lock.task_versions.items()},
        **warning_tags(warnings),
        "mlflow.note.content": description(pipeline),
    }
    _set_tags(store, run_id, tags)
    store.client.log_artifacts(run_id, str(layout.report), "report")
    store.client.set_terminated(run_id, "FINISHED")


def description(pipeline: Pipeline) -> str:
    """Return the run's description in MLflow: what was trained where, the key figures, and where the others are."""
    params, selected = pipeline.params, pipeline.selection.iteration
    scores = [read_document(pipeline.layout.score(split), Scores) for split in TEST_SPLITS]
    trained = f"`{params.policy.source}` in {params.world.name} by the profile `{' '.join(params.profiles)}`"
    lines = [
        f"{trained}: {params.iterations} iterations, of which {selected} was selected on dev.",
        "",
        *score_table(scores),
        "",
        "In percent. The metrics `test_normal/*`, `test_challenge/*` and `selection/*` have all figures with their "
        "standard errors, `dev/*` the learning curve. The artifact `report` is the report: open its `index.html`.",
    ]
    return "\n".join(lines)


def _set_tags(store: Store, run_id: str, tags: Mapping[str, str]) -> None:
    for name, value in tags.items():
        store.client.set_tag(run_id, name, value)


def _log_scores(store: Store, pipeline: Pipeline, run_id: str, model: "LoggedModel | None") -> None:
    """Log final scores, linked to the model (if they are a model's) and to the rollouts behind them."""
    step, model_id = iteration_number(pipeline.selection.iteration), model.model_id if model else None
    for split in TEST_SPLITS:
        for numbers, table in _counted_on(pipeline.layout, split):
            path = table.relative_to(pipeline.layout.root).as_posix()
            store.log_numbers(run_id, {step: numbers}, (model_id, path, pipeline.lock.artifacts[path]))


def _counted_on(layout: Layout, split: str) -> Iterator[tuple[dict[str, float], Path]]:
    """Yield a split's scores with their rollouts: those at the test budget, then those at the training budget."""
    yield score_numbers(layout, split), layout.score_rollouts(split)
    at_training = read_document(layout.score(split), Scores).training_budget
    if at_training is not None:
        table = layout.training_budget_rollouts(split) if at_training.played_again else layout.score_rollouts(split)
        yield training_budget_numbers(at_training, split), table


def _log_datasets(store: Store, pipeline: Pipeline, run_id: str, commit: str) -> None:
    from tasks.record_lineage.dvc_dataset import dvc_inputs

    sources = {**pipeline.lock.sources, **pipeline.lock.artifacts}
    folders = (pipeline.layout.world, pipeline.layout.base_policy)
    read = [path.relative_to(pipeline.layout.root).as_posix() for path in folders]
    data = {path: md5 for path, md5 in sources.items() if path.endswith(".parquet") or path in read}
    store.client.log_inputs(run_id, dvc_inputs({**pipeline.lock.sources, **data}, commit))
