"""Secrets of the environment never enter artifacts, logs, MLflow, Prefect's database or the report."""

from pathlib import Path

import pytest

from flows.runners.prefect_server import local_server
from tasks.core.processes.addresses import without_credentials
from tests.flows.tiny_project import make_project, run

SECRET = "hunter2"  # part of every fake secret below
ENVIRONMENT = {
    "AWS_SECRET_ACCESS_KEY": f"aws-{SECRET}",
    "HF_TOKEN": f"hf_{SECRET}",
    "OPENAI_API_KEY": f"sk-{SECRET}",
    "MLFLOW_TRACKING_PASSWORD": f"mlflow-{SECRET}",
    "MLFLOW_TRACKING_URI": f"http://user:{SECRET}@127.0.0.1:9",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
}


def test_addresses_are_shown_without_their_user() -> None:
    told = without_credentials(f"at http://user:{SECRET}@host:80/a and postgresql://{SECRET}@db/x: user@example.org")
    assert told == "at http://host:80/a and postgresql://db/x: user@example.org"


@pytest.mark.services
def test_no_secret_is_written_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_project(tmp_path / "project")
    monkeypatch.chdir(root)
    remote = root / ".dvc" / "config.local"
    credentials = f"    url = s3://bucket\n    secret_access_key = {SECRET}\n"
    remote.write_text(f"['remote \"store\"']\n{credentials}[core]\n    remote = store\n")
    with local_server() as url:
        environment = {**ENVIRONMENT, "PREFECT_API_URL": url.replace("://", f"://user:{SECRET}@")}
        failed = run(root, "-m", "flows.cli", "run", **environment)
        assert failed.returncode == 1, failed.stderr
        assert "can't be watched live" in failed.stderr
        assert "MLflow at http://127.0.0.1:9" in failed.stderr
        done = run(root, "-m", "flows.cli", "run", **environment | {"MLFLOW_TRACKING_URI": ""})
        assert done.returncode == 0, done.stderr
    for command in (failed, done):
        assert SECRET not in command.stdout + command.stderr
    written = [path for path in root.rglob("*") if path.is_file() and path != remote]
    assert root / "mlflow.db" in written
    assert root / ".prefect/server.log" in written
    assert [str(path) for path in written if SECRET.encode() in path.read_bytes()] == []
