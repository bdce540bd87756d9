"""Recorded commit and parameters of artifacts from the time they were made, whatever the checkout holds today."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tasks.core.config.lineage import LineageConfig
from tasks.core.lineage.dvc_lock import SIDE_TASKS
from tasks.core.lineage.git_state import GitState
from tasks.core.lineage.mlflow_store import explained, open_store, store_exists, tracking_uri


@dataclass(frozen=True)
class Origin:
    """The state of the checkout in which a recorded run began."""

    git: GitState
    params: Mapping[str, str]
    """Values as text, by dotted name."""
    params_digest: str


def find_origin(config: LineageConfig, root: Path, versions: Mapping[str, str]) -> Origin | None:
    """Return the oldest finished run of any experiment whose tasks had these versions (digests of code and params).

    Versions of SIDE_TASKS are ignored, since no run is recorded by them. None where no such run was recorded. Raises
    LineageError when MLflow cannot be reached.
    """
    made = {task: version for task, version in versions.items() if task not in SIDE_TASKS}
    if not made or not store_exists(root):
        return None
    store = open_store(config, root)
    with explained(tracking_uri(root)):
        conditions = [f"tags.`task_version.{task}` = '{version}'" for task, version in sorted(made.items())]
        everywhere = [experiment.experiment_id for experiment in store.client.search_experiments()]
        runs = store.client.search_runs(
            everywhere, " and ".join(conditions), order_by=["attributes.start_time ASC"], max_results=1
        )
    if not runs:
        return None
    tags = runs[0].data.tags
    git = GitState(commit=tags.get("git_commit", ""), dirty=tags.get("git_dirty") == "true")
    return Origin(git, dict(runs[0].data.params), tags.get("params_digest", "?"))
