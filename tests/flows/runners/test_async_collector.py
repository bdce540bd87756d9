"""Asynchronous collection: rollouts that are played during an update, with the same bytes as without it."""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.errors import StageFailed
from flows.runners.async_collector import AsyncCollector, can_overlap
from tasks.core.config.params import Params
from tasks.core.records.layout import Layout, holds_clocks
from tests.flows.tiny_project import configure, copy_project, succeed

SETTINGS = ("iterations=2", "collection.staleness=1", "update.epochs=1")
WarmFlow = Callable[..., str]
TOLD = """
import sys
from flows.cli.app import main
from flows.runners import async_collector
claim = async_collector.AsyncCollector.claim
def told(self, key):
    found = claim(self, key)
    print("claimed", key, found)
    return found
async_collector.AsyncCollector.claim = told
if __name__ == "__main__":
    sys.exit(main(["run", *sys.argv[1:]]))
"""

pytestmark = [pytest.mark.services, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs signals of POSIX")]


@pytest.fixture(scope="module")
def warm_flow(prefect_url: str) -> WarmFlow:
    """Return a function that runs the warm flow until the last update and returns its output."""
    return lambda root, *options: succeed(
        root, "told.py", "--until", "update_policy", *options, PREFECT_API_URL=prefect_url
    )


@pytest.fixture(scope="module")
def played(finished_project: Path, warm_flow: WarmFlow, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a project whose warm flow updated both policies, and played the second rollouts during the first update."""
    root = copy_project(finished_project, tmp_path_factory.mktemp("asynchronous") / "project")
    (root / "told.py").write_text(TOLD)
    configure(root, "--refresh", *SETTINGS)
    assert "claimed i002 True" in warm_flow(root)
    return root


def recorded(root: Path) -> dict[str, Any]:
    """Return DVC's record, without the files that hold wall-clock figures."""
    stages: dict[str, Any] = yaml.safe_load((root / "dvc.lock").read_text())["stages"]
    for stage in stages.values():
        for part in stage.keys() & {"deps", "outs"}:
            stage[part] = [entry for entry in stage[part] if not holds_clocks(entry["path"])]
    return stages


def test_one_stage_at_a_time_gives_the_same_bytes(played: Path, warm_flow: WarmFlow) -> None:
    assert "up to date" in succeed(played, "-m", "dvc", "status", "update_policy@i002")
    assert json.loads((Layout(played).metrics("i002")).read_text())["staleness"] == 1
    assert not (played / ".loopline" / "prefetched").exists()
    beside = recorded(played)
    for folder in (played / "data" / "iterations", played / ".dvc" / "cache"):
        shutil.rmtree(folder)
    (played / "dvc.lock").unlink()
    assert "claimed" not in warm_flow(played, "--sequential")
    made = recorded(played)
    # The copied project's lock also had the stages after the updates, which neither run includes.
    assert {"collect_rollouts@i002", "update_policy@i002"} <= made.keys()
    assert made == {name: beside[name] for name in made}


@pytest.fixture(scope="module")
def collector(played: Path) -> Iterator[AsyncCollector]:
    collector = AsyncCollector(played)
    yield collector
    collector.close()


def always(stage: str) -> bool:
    return True


def forget(root: Path, key: str) -> bytes:
    """Remove an iteration's rollouts; return their content."""
    content = Layout(root).rollouts(key).read_bytes()
    Layout(root).rollouts(key).unlink()
    return content


def test_rollouts_take_their_place_only_when_they_are_claimed(played: Path, collector: AsyncCollector) -> None:
    before = forget(played, "i002")
    collector.prefetch("i001", always)
    assert not Layout(played).rollouts("i002").exists()
    assert collector.claim("i002")
    assert Layout(played).rollouts("i002").read_bytes() == before
    assert not collector.claim("i002")


def test_rollouts_that_no_stage_needs_are_not_played(played: Path, collector: AsyncCollector) -> None:
    asked: list[str] = []

    def never(stage: str) -> bool:
        asked.append(stage)
        return False

    collector.prefetch("i001", never)
    collector.prefetch("i002", always)  # there is no third iteration
    assert asked == ["collect_rollouts@i002"]
    assert not collector.claim("i002")


@pytest.mark.parametrize("change", ["data/manifest.json", "data/iterations/i000/policy/adapter_model.safetensors"])
def test_rollouts_of_other_inputs_are_not_taken(played: Path, collector: AsyncCollector, change: str) -> None:
    forgotten, content = forget(played, "i002"), (played / change).read_bytes()
    collector.prefetch("i001", always)
    (played / change).write_bytes(content + b"\n")
    assert not collector.claim("i002")
    assert not Layout(played).rollouts("i002").exists()
    (played / change).write_bytes(content)
    collector.run("collect_rollouts", "i002")
    assert Layout(played).rollouts("i002").read_bytes() == forgotten


def test_an_engine_that_may_make_room_for_the_update_is_not_used_beside_it(caplog: pytest.LogCaptureFixture) -> None:
    def settled(staleness: int, engine: str, **vllm: Any) -> bool:
        content = {"iterations": 1, "collection": {"staleness": staleness}, "engine": {"name": engine, "vllm": vllm}}
        return can_overlap(Params.model_validate(content))

    assert not settled(0, "transformers") and settled(1, "transformers")
    assert settled(1, "vllm", urls=["http://node1:8000"]) and settled(1, "vllm", sharing="side_by_side")
    assert not caplog.text
    assert not settled(1, "vllm")
    assert "set engine.vllm.sharing to side_by_side" in caplog.text


def test_an_error_of_the_collector_is_reported_by_the_flow(
    played: Path, collector: AsyncCollector, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = Layout(played).tasks
    content = tasks.read_bytes()
    tasks.write_bytes(content[:100])
    try:
        collector.prefetch("i001", always)
        assert not collector.claim("i002")
        with pytest.raises(StageFailed, match=r"train\.parquet: damaged parquet"):
            collector.run("collect_rollouts", "i002")
    finally:
        tasks.write_bytes(content)
    assert "collect_rollouts@i002, ahead of its turn: " in caplog.text


def test_closing_while_it_plays_leaves_neither_files_nor_a_process(played: Path) -> None:
    collector = AsyncCollector(played)
    collector.prefetch("i001", always)
    pid = collector._pid.result()
    collector.close()
    wait_until(lambda: not Path(f"/proc/{pid}").exists() or not Path("/proc").exists())
    assert not (played / ".loopline" / "prefetched").exists()


def test_closing_while_it_runs_a_stage_does_not_wait_for_it(played: Path) -> None:
    """SIGTERM to the flow alone does this: the flow stops waiting for the stage."""
    content = forget(played, "i002")
    collector = AsyncCollector(played)
    pid = collector._pid.result()
    running = collector._begin("collect_rollouts", "i002", played)
    collector.close()
    assert running.cancelled() or isinstance(running.exception(), BrokenProcessPool)
    assert not Path(f"/proc/{pid}").exists() and not Layout(played).rollouts("i002").exists()
    Layout(played).rollouts("i002").write_bytes(content)


def test_drawing_by_coverage_finds_what_earlier_iterations_played(played: Path, collector: AsyncCollector) -> None:
    content = (played / "params.yaml").read_bytes()
    configure(played, "--refresh", *SETTINGS, "iterations=3", "collection.task_drawing=coverage")
    succeed(played, "-m", "flows.stage", "version_stages")
    try:
        collector.prefetch("i002", always)
        assert collector.claim("i003")
    finally:
        (played / "params.yaml").write_bytes(content)
        succeed(played, "-m", "flows.stage", "version_stages")


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
