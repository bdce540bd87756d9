"""The profile `openenv` in miniature: the default policy learns over the wire, from a server in another process."""

from pathlib import Path

import pytest

from tasks.core.records.documents import read_document
from tasks.core.records.layout import Layout
from tasks.core.records.scores import Scores
from tasks.core.records.training import Metrics
from tests.flows.tiny_project import configure, make_project, succeed
from tests.openenv_servers import served_world

pytestmark = pytest.mark.openenv
LITTLE = (
    "iterations=1",
    "collection={tasks_per_iteration: 4, rollouts_per_task: 4, max_concurrent_episodes: 8}",
    "evaluation={every: 1, scenarios: 1}",
    "scoring={rollouts_per_task: 1, scenarios: 4}",
)


def test_one_command_trains_and_scores_on_a_server(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    with served_world("pocketworld", "--sessions", "8") as url:
        configure(project, "openenv", *LITTLE, f"world.openenv.url={url}")
        succeed(project, "-m", "dvc", "repro", "--quiet")
    layout = Layout(project)
    metrics = read_document(layout.metrics("i001"), Metrics)
    assert metrics.optimizer_steps > 0
    scores = read_document(layout.score("test_normal"), Scores)
    assert scores.base_mean_return > 0.3
