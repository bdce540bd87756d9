"""Rollouts in several processes of this machine: the bytes of one process, whatever happens to them."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from flows.dag.stages import find_stage
from flows.workers.executors import executor_of, process_count
from flows.workers.remote_task import WorkerDied
from tasks.collect_rollouts import collect_rollouts
from tasks.core.config.machines import MachinesConfig
from tasks.core.config.params import Params, ParamsError, parse_params
from tasks.core.config.stage_inputs import CollectionInputs
from tasks.core.interfaces.stage import ProcessCache, StageContext
from tasks.core.records.layout import Layout
from tests.core.rollouts import conftest as before_collection
from tests.flows.tiny_project import environment, make_project, run, succeed
from tests.flows.workers.pieces import Piece, deadly, deadly_once, doubled, failing, share

COLLECT = find_stage("collect_rollouts")
params, tokenizer, long_model = before_collection.params, before_collection.tokenizer, before_collection.long_model
collection_context = pytest.fixture(before_collection.context.__wrapped__)  # type: ignore[attr-defined]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux ends workers with their parent")


def parameters(processes: int | str, shards: int = 5, **changes: Any) -> Params:
    collection = {"shards": shards}
    content = {"iterations": 1, "collection": collection, "machines": {"processes": processes}, **changes}
    return parse_params(content, "test")


@pytest.fixture
def context(tmp_path: Path) -> Iterator[StageContext[CollectionInputs]]:
    """Make the context of a stage whose shards two processes play."""
    settings, cache = parameters(2), ProcessCache()
    executor = executor_of(COLLECT, settings)
    yield StageContext(Layout(tmp_path), CollectionInputs.of(settings), "i001", cache, executor)
    cache.close()


def workers() -> list[psutil.Process]:
    """Return the worker processes of this one."""
    return [each for each in psutil.Process().children() if "spawn_main" in " ".join(each.cmdline())]


def wait_until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 280
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_results_come_in_the_order_of_the_shards_from_workers_that_stay(context: StageContext[Any]) -> None:
    for _ in range(2):
        pieces = [Piece(number) for number in range(5)]
        assert context.executor.map(doubled, context, pieces) == [(2 * number, "i001") for number in range(5)]
        pids = {worker.pid for worker in workers()}
        assert len(pids) == 2
    assert {worker.pid for worker in workers()} == pids
    context.cache.close()
    assert not workers()


def test_workers_share_the_cores(context: StageContext[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_CPU_COUNT", "7")
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert context.executor.map(share, context, [Piece(1)]) == [("3", "3")]


def test_a_bug_comes_with_its_traceback_and_ends_the_other_shards(context: StageContext[Any]) -> None:
    with pytest.raises(RuntimeError, match=r"in a worker on (?s:.*), in failing\n(?s:.*)ZeroDivisionError: a bug"):
        context.executor.map(failing, context, [Piece(1), Piece(0), Piece(2)])
    begun = [int(note.read_text()) for note in context.layout.root.glob("begun_*")]
    assert not [pid for pid in begun if psutil.pid_exists(pid)]
    assert context.executor.map(doubled, context, [Piece(3)]) == [(6, "i001")]


def test_another_worker_plays_the_shard_of_one_that_died(
    context: StageContext[Any], caplog: pytest.LogCaptureFixture
) -> None:
    pieces = [Piece(number, f"shard {number}") for number in range(4)]
    assert context.executor.map(deadly_once, context, pieces) == [0, 1, 2, 3]
    assert [record.getMessage() for record in caplog.records] == [
        "shard 0: its worker died; is memory short? Another one plays it again"
    ]


def test_a_worker_that_died_while_it_was_idle_is_replaced(context: StageContext[Any]) -> None:
    assert context.executor.map(doubled, context, [Piece(1)]) == [(2, "i001")]
    for worker in workers():
        worker.kill()
        worker.wait()
    assert context.executor.map(doubled, context, [Piece(1), Piece(2)]) == [(2, "i001"), (4, "i001")]


def test_a_shard_that_no_worker_survives_is_named(context: StageContext[Any]) -> None:
    with pytest.raises(WorkerDied, match="shard 0: its worker died 4 times; is memory short"):
        context.executor.map(deadly, context, [Piece(1, "shard 1"), Piece(0, "shard 0")])


def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    program = (
        "import time\nfrom flows.workers.worker_processes import WorkerProcesses\n"
        "if __name__ == '__main__':\n    WorkerProcesses(2)\n    time.sleep(600)\n"
    )
    (tmp_path / "parent.py").write_text(program)
    with subprocess.Popen([sys.executable, "parent.py"], cwd=tmp_path, env=environment(tmp_path)) as parent:
        found = wait_until(lambda: len(below := psutil.Process(parent.pid).children()) >= 3 and below)
        parent.kill()
    psutil.wait_procs(found, timeout=60)
    assert not [process for process in found if process.is_running()]


def at_work(parent: psutil.Process) -> list[psutil.Process]:
    """Return workers that are busy with a shard of rollouts: they have agents' processes under them."""
    return [each for each in parent.children() if len(each.children(recursive=True)) > 1]


@pytest.mark.faults
def test_the_number_of_processes_changes_no_byte(
    collection_context: StageContext[CollectionInputs], params: Params
) -> None:
    collection = params.collection.model_copy(update={"shards": 4, "tasks_per_iteration": 8, "early_stop": None})
    rollouts = collection_context.layout.rollouts("i001")

    def collected(processes: int) -> bytes:
        machines = MachinesConfig(processes=processes)
        settings = params.model_copy(update={"collection": collection, "machines": machines})
        with closing(ProcessCache()) as cache:
            context = replace(collection_context, inputs=CollectionInputs.of(settings), cache=cache)
            collect_rollouts(replace(context, executor=executor_of(COLLECT, settings)))
        return rollouts.read_bytes()

    alone = collected(1)
    assert collected(2) == alone
    assert not workers()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a project before its first collection, which takes a while."""
    settings = ("collection.shards=2", "machines.processes=2", "collection.rollouts_per_task=400")
    root = make_project(tmp_path_factory.mktemp("processes") / "project", *settings)
    succeed(root, "-m", "dvc", "repro", "--quiet", "preflight", "filter_tasks")
    return root


@pytest.mark.faults
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_stage_that_is_ended_leaves_no_process_and_no_file(project: Path, number: int) -> None:
    command = [sys.executable, "-m", "flows.stage", "collect_rollouts", "i001"]
    with subprocess.Popen(command, cwd=project, env=environment(project), stderr=subprocess.PIPE, text=True) as stage:
        process = psutil.Process(stage.pid)
        wait_until(lambda: len(at_work(process)) == 2)
        below = process.children(recursive=True)
        stage.send_signal(number)
        _, said = stage.communicate(timeout=120)
    assert stage.returncode not in (0, None)
    psutil.wait_procs(below, timeout=120)
    assert not [each for each in below if each.is_running()]
    assert not Layout(project).rollouts("i001").exists()
    assert "Traceback" not in said


@pytest.mark.faults
def test_a_shard_that_fails_is_one_message(project: Path) -> None:
    adapter = Layout(project).policy("i000") / "adapter_model.safetensors"
    content = adapter.read_bytes()
    adapter.write_bytes(content[:100])
    done = run(project, "-m", "flows.stage", "collect_rollouts", "i001")
    adapter.write_bytes(content)
    assert done.returncode == 1
    said = [line for line in done.stderr.splitlines() if line.startswith("collect_rollouts@i001: ")]
    assert len(said) == 1 and "adapter_model.safetensors" in said[0]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("processes", "changes", "count"),
    [
        (3, {}, 3),
        (9, {}, 5),
        ("auto", {"policy": {"device": "cpu"}}, 4),
        ("auto", {"policy": {"device": "cuda"}}, 1),
        ("auto", {"engine": {"name": "oracle"}, "policy": {"device": "cuda"}}, 4),
        ("auto", {"engine": {"name": "vllm"}}, 1),
        ("auto", {"engine": {"name": "chat_api"}, "iterations": 0}, 1),
    ],
)
def test_there_is_a_process_for_each_core_and_shard_unless_they_would_share_more(
    processes: int | str, changes: dict[str, Any], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHON_CPU_COUNT", "4")
    assert process_count(parameters(processes, **changes)) == count


@pytest.mark.parametrize("changes", [{"engine": {"name": "vllm"}}, {"engine": {"name": "chat_api"}, "iterations": 0}])
def test_an_engine_outside_of_the_processes_is_asked_by_one(changes: dict[str, Any]) -> None:
    with pytest.raises(ParamsError, match=r"machines\.processes: .* answers one process of a machine"):
        parameters(2, **changes)
