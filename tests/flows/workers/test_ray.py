"""Rollouts on a real Ray cluster of two workers on this machine: the bytes of one process, whatever happens to them."""

import hashlib
import logging
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from prefect import get_client
from prefect.settings import get_current_settings
from pyarrow import parquet
from ray import cloudpickle
from ray.cluster_utils import Cluster

from flows.dag.stages import find_stage
from flows.errors import StageFailed
from flows.runners.prefect_server import prefect_api
from flows.workers import executors, ray_cluster
from flows.workers.content_cache import NeededFolder
from flows.workers.executors import ShardExecutor, ranks_of
from flows.workers.ray_cluster import ClusterUnavailable
from flows.workers.remote_task import WorkerDied
from tasks.core.config.machines import MachinesConfig, RayConfig
from tasks.core.config.params import Params, ParamsError, parse_params
from tasks.core.config.stage_inputs import CollectionInputs, UpdateInputs
from tasks.core.interfaces.stage import ProcessCache, StageContext
from tasks.core.records.files import digest
from tasks.core.records.layout import Layout, holds_clocks
from tasks.update_policy import update_policy
from tests.flows.tiny_project import make_project
from tests.hosts.parts import make_update, on_one_host

Start = Callable[..., "subprocess.Popen[str]"]
COLLECT = find_stage("collect_rollouts")

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Start a cluster of two machines with one CPU each, both on this machine; yield its address."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    node = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": 80_000_000, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    cluster.add_node(**node)
    yield cluster.address
    cluster.shutdown()


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Start a Prefect server for all of these tests; yield its variables."""
    with chdir(tmp_path_factory.mktemp("server")), prefect_api():
        yield get_current_settings().to_environment_variables(exclude_unset=True, include_secrets=True)


@pytest.fixture(scope="module")
def start(api: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Start:
    """Return a function that starts Python in a project's folder."""

    def run(root: Path, *arguments: str) -> "subprocess.Popen[str]":
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        variables = {**os.environ, **api, "PYTHONPATH": str(root), "PATH": path}
        pipe = subprocess.PIPE
        command = [sys.executable, *arguments]
        return subprocess.Popen(command, cwd=root, env=variables, stdout=pipe, stderr=pipe, text=True)

    return run


@pytest.fixture(scope="module")
def played(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a project whose rollouts were played in one shard by one process."""
    root = make_project(tmp_path_factory.mktemp("ray") / "project")
    ended(start(root, "-m", "flows.cli", "run", "--until", "score"))
    return root


def ended(process: "subprocess.Popen[str]") -> str:
    """Wait for a command that must succeed; return its output."""
    stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 0, stderr
    return stdout


@pytest.fixture(scope="module")
def on_ray(played: Path, address: str) -> Path:
    """Set the same project's next rollouts to be played in two shards on Ray."""
    content = yaml.safe_load((played / "params.yaml").read_text())
    content["machines"]["ray"]["address"] = address
    content["collection"]["shards"] = 2
    (played / "params.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return played


def rollouts(root: Path) -> dict[Path, bytes]:
    """Return the tables that hold rollouts: those of a second budget have none here."""
    tables = root.glob("data/*/**/*rollouts.parquet")
    return {path: path.read_bytes() for path in tables if parquet.read_metadata(path).num_rows}


def forget(root: Path, files: dict[Path, bytes]) -> None:
    """Remove rollouts, from DVC's cache too, so that their stages have to run again, and no others."""
    shutil.rmtree(root / ".dvc" / "cache" / "runs")
    for path, content in files.items():
        name = hashlib.md5(content).hexdigest()
        path.unlink()
        (root / ".dvc" / "cache" / "files" / "md5" / name[:2] / name[2:]).unlink()


def recorded(root: Path) -> dict[str, Any]:
    """Return DVC's records of the stages, except times, and versions, which depend on all of params.yaml."""
    stages: dict[str, Any] = yaml.safe_load((root / "dvc.lock").read_text())["stages"]
    del stages["version_stages"]
    for stage in stages.values():
        stage["outs"] = [out for out in stage["outs"] if not holds_clocks(out["path"])]
    return stages


def left_running(root: Path) -> list[str]:
    """Return processes that run the project's code: its commands, its workers on Ray, and the children of both."""
    running = []
    for process in psutil.process_iter():
        try:
            if str(root) in f"{process.environ().get('PYTHONPATH')} {process.cmdline()} {process.cwd()}":
                running.append(" ".join(process.cmdline())[:100])
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return running


def wait_until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 280
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def at_work_in(run: "subprocess.Popen[str]") -> psutil.Process:
    """Return a worker that is busy with a shard of a run, as soon as there is one."""
    workers = wait_until(lambda: at_work() or run.poll() is not None)
    assert isinstance(workers, list), run.communicate()[1]
    return workers[0]


def at_work() -> list[psutil.Process]:
    """Return workers that are busy with a shard: they have agents' processes under them."""
    workers = []
    for process in psutil.process_iter():
        try:
            if process.cmdline()[:1] == ["ray::play_shard"] and len(process.children(recursive=True)) > 1:
                workers.append(process)
        except psutil.NoSuchProcess:
            continue
    return workers


def test_two_workers_give_the_bytes_of_one_process_though_one_is_killed(
    played: Path, start: Start, request: pytest.FixtureRequest
) -> None:
    before, bytes_before = recorded(played), rollouts(played)
    assert len(bytes_before) == 5
    forget(played, bytes_before)
    root = request.getfixturevalue("on_ray")  # only now
    begun = datetime.now(UTC)
    run = start(root, "-m", "flows.cli", "run", "--until", "score")
    at_work_in(run).kill()
    assert ended(run).splitlines()[-1] == "6 run, 0 from cache, 8 up to date"
    assert rollouts(root) == bytes_before
    assert recorded(root) == before
    wait_until(lambda: not left_running(root))
    with get_client(sync_client=True) as prefect:
        runs = [run for run in prefect.read_task_runs() if run.start_time and run.start_time > begun]
    shown = [run.state_name for run in runs if ", shard " in run.name]
    assert shown == ["Completed"] * len(shown) and len(shown) >= 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_no_process_and_no_file(on_ray: Path, start: Start, number: int) -> None:
    path, settings = Layout(on_ray).rollouts("i001"), on_ray / "params.yaml"
    content, params = path.read_bytes(), settings.read_text()
    path.unlink()
    settings.write_text(params.replace("rollouts_per_task: 4", "rollouts_per_task: 200"))  # so that it takes a while
    run = start(on_ray, "-m", "flows.stage", "collect_rollouts", "i001")
    at_work_in(run)
    run.send_signal(number)
    run.communicate(timeout=60)
    assert run.returncode != 0
    wait_until(lambda: not left_running(on_ray))
    assert not path.exists()
    path.write_bytes(content)
    settings.write_text(params)


def test_a_shard_that_fails_is_one_message(on_ray: Path, start: Start) -> None:
    adapter = Layout(on_ray).policy("i000") / "adapter_model.safetensors"
    content = adapter.read_bytes()
    adapter.write_bytes(content[:100])
    run = start(on_ray, "-m", "flows.stage", "collect_rollouts", "i001")
    _, stderr = run.communicate(timeout=300)
    adapter.write_bytes(content)
    assert run.returncode == 1
    told = [line for line in stderr.splitlines() if line.startswith("collect_rollouts@i001: ")]
    assert len(told) == 1 and "adapter_model.safetensors" in told[0]
    assert "Traceback" not in stderr


@dataclass(frozen=True)
class Piece:
    """A piece of work."""

    number: int
    description: str = "piece"

    def __len__(self) -> int:
        return 1


def doubled(context: StageContext[Any], piece: Piece) -> tuple[int, str]:
    return 2 * piece.number, context.key


def failing(context: StageContext[Any], piece: Piece) -> int:
    if piece.number == 0:
        raise ZeroDivisionError("a bug")
    for _ in range(6000):
        time.sleep(0.1)
    return 0


def deadly(context: StageContext[Any], piece: Piece) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def parameters(**changes: Any) -> Params:
    return parse_params({"iterations": 1, **changes}, "test")


@pytest.fixture(scope="module")
def context(
    tmp_path_factory: pytest.TempPathFactory, address: str, api: dict[str, str]
) -> Iterator[StageContext[CollectionInputs]]:
    """Return the context of a stage in this process, connected to the cluster."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    cache, config = ProcessCache(), MachinesConfig(ray=RayConfig(address=address))
    layout, inputs = Layout(tmp_path_factory.mktemp("context")), CollectionInputs.of(parameters())
    executor = ShardExecutor(
        COLLECT, lambda kept: kept.get("ray", config, lambda: ray_cluster.Cluster(config)), lambda _: nullcontext()
    )
    yield StageContext(layout, inputs, "i001", cache, executor)
    cache.close()
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def test_after_a_machine_lacked_files_those_of_the_next_policy_are_sent_unasked(
    context: StageContext[Any], tmp_path: Path
) -> None:
    assert context.executor.map(doubled, context, [Piece(1)]) == [(2, "i001")]  # now there is a connection
    for name in ("world", "first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    world, first, second = (NeededFolder.of(tmp_path / name) for name in ("world", "first", "second"))
    contents = ray_cluster._Contents()
    contents.keep([world, first])
    assert contents.of([world, first]) == {}
    contents.send([world, first], {sha256 for _, sha256 in first.files})  # the machine had the world
    contents.keep([world, second])
    sent = contents.of([world, first, second])
    assert list(sent) == [sha256 for _, sha256 in second.files]
    assert [ray_cluster.ray.get(piece) for pieces in sent.values() for piece in pieces] == [b"second"]


def test_ranks_of_two_machines_train_the_policy_of_two_of_one(
    context: StageContext[Any], address: str, tmp_path: Path
) -> None:
    layout = make_update(tmp_path / "project", address=address)
    params = Params.model_validate_json((layout.root / "params.json").read_text())
    ranks = ranks_of(find_stage("update_policy"), "i001", params, context.cache)
    update_policy(StageContext(layout, UpdateInputs.of(params), "i001", ranks=ranks))
    assert digest(layout.policy("i001")) == on_one_host(tmp_path, 2)


def test_results_come_in_the_order_of_the_jobs(context: StageContext[Any]) -> None:
    pieces = [Piece(number) for number in range(5)]
    assert context.executor.map(doubled, context, pieces) == [(2 * number, "i001") for number in range(5)]


def test_a_bug_comes_with_its_traceback_and_ends_the_other_shards(context: StageContext[Any]) -> None:
    with pytest.raises(RuntimeError, match=r"in a worker on (?s:.*), in failing\n(?s:.*)ZeroDivisionError: a bug"):
        context.executor.map(failing, context, [Piece(0), Piece(1), Piece(2)])


def test_a_shard_that_no_worker_survives_is_named(
    context: StageContext[Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ray_cluster, "DEATHS", 1)
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(WorkerDied, match="piece: its worker died 2 times, at last on "),
    ):
        context.executor.map(deadly, context, [Piece(0)])
    assert "piece: its worker died on " in caplog.text and "(1 of 1)" in caplog.text


def test_other_code_than_the_pipelines_is_refused(context: StageContext[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "code_version", lambda *_: "another")
    with pytest.raises(StageFailed, match=r"collect_rollouts: the code in .* is not the pipeline's"):
        context.executor.map(doubled, context, [Piece(1)])


@pytest.mark.parametrize("changes", [{"address": "127.0.0.1:1"}, {"gpus_per_worker": 8, "wait_s": 0}])
def test_a_cluster_that_cannot_do_it_is_refused(address: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ClusterUnavailable, match=r"machines\.ray"):
        ray_cluster.Cluster(MachinesConfig(ray=RayConfig(**{"address": address, **changes})))


def test_the_work_for_a_worker_can_be_pickled() -> None:
    inputs = CollectionInputs.of(parameters())
    assert pickle.loads(pickle.dumps(inputs)) == inputs


def test_an_api_is_asked_by_one_process() -> None:
    with pytest.raises(ParamsError, match="rate limits"):
        parameters(
            iterations=0,
            engine={"name": "chat_api"},
            machines={"ray": {"address": "auto"}},
        )
