"""RAGEN's worlds in miniature: one command from nothing to scores, StarPO-S on the profile's base policy."""

from pathlib import Path

import pytest

from tasks.core.records.documents import read_document
from tasks.core.records.layout import Layout
from tasks.core.records.scores import Scores
from tasks.core.records.training import Metrics
from tests.flows.tiny_project import make_project, succeed

pytestmark = [pytest.mark.services, pytest.mark.timeout(600)]
COUNTS = "{train: 12, dev: 3, test_normal: 3, test_challenge: 3}"
LITTLE = (
    "iterations=1",
    "collection.tasks_per_iteration=4",
    "collection.rollouts_per_task=4",
    "evaluation.every=1",
    "scoring.rollouts_per_task=1",
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("games") / "project")


@pytest.mark.parametrize("world", ["bandit", "frozen_lake", "sokoban", "webshop"])
def test_one_command_trains_and_scores(project: Path, world: str) -> None:
    size = (*LITTLE, f"world.{world}.counts={COUNTS}")
    succeed(project, "-m", "flows.cli", "configure", world, "starpo_s", *(f"--set={setting}" for setting in size))
    succeed(project, "-m", "dvc", "repro", "--quiet")
    layout = Layout(project)
    metrics = read_document(layout.metrics("i001"), Metrics)
    assert metrics.optimizer_steps > 0
    for split in ("test_normal", "test_challenge"):
        assert read_document(layout.score(split), Scores).base_mean_return >= 0
