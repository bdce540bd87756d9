"""Commit and parameters of artifacts as they were recorded when they were made, whatever lies in the checkout today."""

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
    """By dotted name, as text."""
    params_digest: str


def find_origin(config: LineageConfig, root: Path, versions: Mapping[str, str]) -> Origin | None:
    """The oldest finished run, of any experiment, whose tasks had these versions (digests of code and parameters).

    Versions of SIDE_TASKS are passed over: no run is recorded by them. None where no such run was recorded. Raises
    LineageError when MLflow cannot be reached.
    """
    made = {task: version for task, version in versions.items() if task not in SIDE_TASKS}
    if not made or not store_exists(root):
        return None
    store = open_store(config, root)
    with explained(tracking_uri(root)):
        conditions = [f"tags.`task_version.{task}` = '{version}'" for task, version in sorted(made.items())]
        everywhere = [experiment.experiment_id for experiment in store.client.search_experiments()]
        found = store.client.search_runs(
            everywhere, " and ".join(conditions), order_by=["attributes.start_time ASC"], max_results=1
        )
    if not found:
        return None
    tags = found[0].data.tags
    git = GitState(commit=tags.get("git_commit", ""), dirty=tags.get("git_dirty") == "true")
    return Origin(git, dict(found[0].data.params), tags.get("params_digest", "?"))
