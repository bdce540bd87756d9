"""The same recording on a real MLflow server: artifacts and registry go through HTTP."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tasks.core.lineage.mlflow_store import open_store
from tasks.core.processes.addresses import free_port
from tasks.core.registry.model_registry import Registry
from tasks.core.registry.run_registry import compare_versions, open_registry, promote_version
from tasks.record_lineage.recording import Pipeline, record_iteration, record_pipeline
from tests.record_lineage.test_traces import addresses, check_a_trained_rollout, traces

pytestmark = pytest.mark.services


@pytest.fixture
def server(tmp_path: Path, empty_store: Path) -> Iterator[str]:
    port = str(free_port())
    folder = tmp_path / "server"
    folder.mkdir()
    (folder / "mlflow.db").write_bytes(empty_store.read_bytes())
    places = [
        "--backend-store-uri",
        "sqlite:///mlflow.db",
        "--artifacts-destination",
        str(folder / "artifacts"),
        "--workers",
        "1",
    ]
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--host",
        "127.0.0.1",
        "--port",
        port,
        "--workers",
        "1",
        *places,
    ]
    without_jobs = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # saves seven processes
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=folder, stdout=log, stderr=log, env=without_jobs, start_new_session=True
        )
    try:
        _wait_until_healthy(f"http://127.0.0.1:{port}", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(120)


def _wait_until_healthy(address: str, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/health", timeout=2):
            return
        time.sleep(0.5)
    raise AssertionError("the MLflow server did not start")


def test_a_run_is_recorded_once_on_a_server_and_compared_and_promoted_there(
    pipeline: Pipeline,
    another_run: Callable[..., Pipeline],
    server: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    record_iteration(pipeline, "i001")
    recorded = record_pipeline(pipeline)
    assert record_pipeline(Pipeline(pipeline.layout, pipeline.params)) == recorded
    store = open_store(pipeline.params.lineage, pipeline.layout.root)
    client = store.client
    version = client.get_model_version(recorded.model_name, recorded.model_version)
    assert version.tags["dvc_md5"] == pipeline.lock.artifacts["data/iterations/i002/policy"]
    run = client.get_run(recorded.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.metrics["test_normal/tgc"] == 70.0
    found = traces(pipeline, recorded.run_id)
    assert len(found) == 10, "one of each iteration, of each dev evaluation, of both policies on both test splits"
    for place in (place for place in found if place.startswith("i0")):
        check_a_trained_rollout(found[place], pipeline.layout)
    assert set(addresses(pipeline.layout).values()) == {
        f"{server}/#/experiments/{run.info.experiment_id}/traces?selectedEvaluationId={trace.info.trace_id}"
        for trace in found.values()
    }
    weights = list((tmp_path / "server" / "artifacts").rglob("adapter_model.safetensors"))
    assert [file.read_bytes() for file in weights] == [b"i002"]
    record_pipeline(another_run("worse", {"a1"}))
    registry = open_registry(pipeline.layout.root, pipeline.params)
    comparison, _ = compare_versions(registry, ["1", "challenger"], pipeline.layout.root)
    assert [one.name for one in comparison.models] == ["1", "2"]
    gains = {one.split: one.difference for one in comparison.differences if (one.level, one.metric) == ("all", "tgc")}
    assert gains == {split: pytest.approx(-100 / 3) for split in ("dev", "test_normal", "test_challenge")}
    assert promote_version(registry, "1", pipeline.params).promote
    assert not promote_version(registry_again(pipeline), "2", pipeline.params).promote
    assert [version.aliases for version in registry_again(pipeline).versions] == [("champion",), ("challenger",)]


def registry_again(pipeline: Pipeline) -> Registry:
    """Open the registry as another process would."""
    return open_registry(pipeline.layout.root, pipeline.params)
