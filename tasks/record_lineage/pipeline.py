"""A finished or running pipeline in a working tree, and its names and tags for MLflow. Knows nothing of MLflow."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tasks.core.config.dag import iteration_key, iteration_number
from tasks.core.config.params import Params
from tasks.core.config.splits import TEST_SPLITS
from tasks.core.lineage.dvc_lock import DvcLock, lock_of
from tasks.core.lineage.git_state import GitState, git_state
from tasks.core.lineage.params_and_metrics import params_digest, start_digest
from tasks.core.policies.selected_policy import read_selection_and_scores
from tasks.core.records.documents import read_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import RunManifest, StageVersions
from tasks.core.records.scores import Selection


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
        return {
            "params_digest": params_digest(self.params),
            "git_commit": self.git.commit,
            "git_dirty": "unknown" if self.git.dirty is None else str(self.git.dirty).lower(),
            **({"packages": " ".join(packages)} if (packages := self._packages) else {}),
        }

    @property
    def _packages(self) -> tuple[str, ...]:
        return read_document(self.layout.manifest, RunManifest).packages

    @property
    def selected_policy(self) -> Path:
        return self.layout.policy(self.selection.iteration)

    @property
    def policy_tags(self) -> dict[str, str]:
        """Return the tags that lead from a model version back to its artifacts."""
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
        """Return the artifacts that the policy was trained and scored on, and its base model: path to DVC's md5."""
        layout = self.layout
        scored = [layout.score_rollouts(split) for split in TEST_SPLITS]
        evaluated = layout.evaluation_rollouts(self.selection.iteration)
        paths = [layout.world, layout.base_policy, layout.tasks, evaluated, *scored]
        names = [path.relative_to(layout.root).as_posix() for path in paths]
        return {name: self.lock.artifacts[name] for name in names if name in self.lock.artifacts}

    @property
    def ancestors(self) -> list[str]:
        """Return md5 of the checkpoints between the base and the selected policy, nearest first, without the base."""
        last = iteration_number(self.selection.iteration)
        folders = [self.layout.policy(iteration_key(step)) for step in range(last - 1, 0, -1)]
        names = [folder.relative_to(self.layout.root).as_posix() for folder in folders]
        return [self.lock.artifacts[name] for name in names if name in self.lock.artifacts]


def require_as_it_ran(pipeline: Pipeline) -> None:
    """Raise ArtifactError where stages have not run with their present versions: there is no run to record."""
    if outdated := [*_outdated_stages(pipeline)]:
        raise ArtifactError(f"the pipeline is not finished ({', '.join(outdated)}); run `dvc repro`, which records it")


def _outdated_stages(pipeline: Pipeline) -> Iterator[str]:
    """Yield the stages that have not run since their versions were written."""
    now = read_document(pipeline.layout.stage_versions, StageVersions).root
    for task, digest in pipeline.lock.task_versions.items():
        if task not in now or now[task].digest != digest:
            yield f"{task} has not run since"
