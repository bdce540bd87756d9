"""A warning of a collapse on its way through the warm flow: log, a real Prefect server, MLflow."""

import json
import urllib.request
from pathlib import Path

import pytest

from tests.flows.test_experiments import runs
from tests.flows.tiny_project import make_project, run

pytestmark = pytest.mark.services


def test_a_warning_is_in_the_log_a_table_of_prefect_and_a_tag_of_mlflow(tmp_path: Path, prefect_url: str) -> None:
    project = make_project(tmp_path / "project", "update.learning_rate=0.1", "update.max_grad_norm=100")
    done = run(project, "-m", "flows.cli", "run", "--until", "update_policy@i001", PREFECT_API_URL=prefect_url)
    assert done.returncode == 0, done.stderr
    assert "i001: sign of a collapse: large_update: kl_per_token is" in done.stderr
    with urllib.request.urlopen(f"{prefect_url}/artifacts/pipeline-warnings/latest", timeout=30) as answer:
        (row,) = [row for row in json.loads(json.load(answer)["data"]) if row["rule"] == "large_update"]
    assert row["iteration"] == 1 and row["evidence"] in done.stderr
    (recorded,) = runs(project)
    assert recorded.data.tags["warning.i001.large_update"] == row["evidence"]
    assert recorded.data.metrics["update/warnings"] >= 1
    assert not list((project / "data").glob("**/monitor*"))
