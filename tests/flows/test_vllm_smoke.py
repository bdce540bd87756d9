"""The pipeline in miniature on a vLLM server, by both runners: one server for all stages of a run, none after it."""

import json
import os
import shutil
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from tasks.core.engines.vllm.interpreter import VLLM_CPU
from tasks.core.interpreters import INTERPRETERS, python_executable
from tests.flows.tiny_project import ROOT, configure, make_project, succeed

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(3600)]

CACHE = ROOT / ".loopline" / "vllm" / "cache"
"""What vLLM found out about the model's class, in a process of its own."""


@pytest.fixture(scope="module")
def smoke_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_project(tmp_path_factory.mktemp("smoke") / "project")
    python_executable(ROOT / INTERPRETERS, VLLM_CPU)
    (folder / ".loopline").mkdir(exist_ok=True)
    (folder / ".loopline" / "interpreters").symlink_to(ROOT / INTERPRETERS)
    if CACHE.is_dir():
        shutil.copytree(CACHE, folder / CACHE.relative_to(ROOT))
    configure(folder, "vllm_smoke")
    return folder


def test_a_warm_flow_leaves_what_dvc_repro_finds_up_to_date(smoke_project: Path) -> None:
    succeed(smoke_project, "-m", "flows.cli", "run")
    data = smoke_project / "data"
    rollouts = pq.read_table(data / "iterations/i001/rollouts.parquet")
    assert set(rollouts["engine"].to_pylist()) == {"vllm"}
    metrics = json.loads((data / "iterations/i001/metrics.json").read_text())
    assert metrics["engine_mismatch"]["mean"] < 1e-3
    assert (data / "report/index.html").exists() and (data / "lineage.json").exists()
    assert_one_server_that_ended(smoke_project)

    lock = (smoke_project / "dvc.lock").read_bytes()
    assert "up to date" in succeed(smoke_project, "-m", "dvc", "repro")
    assert (smoke_project / "dvc.lock").read_bytes() == lock


def test_the_stages_of_dvc_repro_share_a_server(smoke_project: Path) -> None:
    succeed(smoke_project, "-m", "flows.cli", "configure", "--refresh", "--set", "scoring.rollouts_per_task=2")
    said = succeed(smoke_project, "-m", "dvc", "repro", "score")
    assert "score@test_normal" in said and "score@test_challenge" in said
    assert_one_server_that_ended(smoke_project)


def assert_one_server_that_ended(folder: Path) -> None:
    """Assert that one server ran and ended; a server's start removes the logs of pipelines that are gone."""
    assert len(list((folder / ".loopline" / "vllm").glob("*.log"))) == 1
    _, alive = psutil.wait_procs(processes_of(folder), timeout=120)
    assert not alive


def processes_of(folder: Path) -> list[psutil.Process]:
    """Return servers and supervisors that belong to the pipeline in `folder`."""
    running = []
    for process in psutil.process_iter():
        try:
            if str(folder) in " ".join(process.cmdline()) or str(folder) in process.environ().get(
                "VLLM_CACHE_ROOT", ""
            ):
                running.append(process)
        except (psutil.AccessDenied, psutil.NoSuchProcess):
            continue
    return [process for process in running if process.pid != os.getpid()]
