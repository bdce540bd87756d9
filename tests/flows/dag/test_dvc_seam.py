"""The contract with DVC's private seams: run these tests before an upgrade of DVC."""

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import psutil
import pytest
from dvc.lock import DEFAULT_TIMEOUT, make_lock
from dvc.utils.serialize import dumps_yaml, loads_yaml

from flows.dag import lock_file
from flows.dag.dvc_seam import Outcome, PipelineFailed, StageRunner, reproduce
from flows.dag.lock_file import LockFile
from tests.flows.tiny_project import ROOT, succeed

pytestmark = pytest.mark.whole_runs

ALL = ["prepare_world", *(f"filter_advantages@i00{i}" for i in (1, 2, 3)), "strangers_stage"]


def body(name: str, key: str) -> None:
    """Write the outputs that the little project's two stages declare; depends only on its arguments."""
    path = Path("data/world/a") if name == "prepare_world" else Path(f"data/iterations/{key}/training_batch.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{name} {key}")


class Runner(StageRunner):
    """A runner that runs `body` once for each stage."""

    def __init__(self, body: Callable[[str, str], None] = body) -> None:
        self._body = body

    def run(self, name: str, key: str) -> None:
        self._body(name, key)

    def attempt(self, stage: str, key: str, attempt: Callable[[], Outcome]) -> None:
        attempt()


@pytest.fixture
def inside(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(project)
    return project


def test_outcomes_and_recording(inside: Path, python: Callable[..., CompletedProcess[str]]) -> None:
    assert set(reproduce(inside, [], Runner())) == set(ALL)
    assert reproduce(inside, [], Runner()) == dict.fromkeys(ALL, "up to date")
    assert (inside / "data/hello").read_text() == "hello\n"
    assert "up to date" in python("-m", "dvc", "status").stdout
    (inside / "data/iterations/i002/training_batch.parquet").unlink()
    outcomes = reproduce(inside, [], Runner())
    assert outcomes["filter_advantages@i002"] == "from cache"
    assert (inside / "data/iterations/i002/training_batch.parquet").read_text() == "filter_advantages i002"


def test_targets(inside: Path) -> None:
    assert reproduce(inside, ["filter_advantages@i002"], Runner()) == dict.fromkeys(
        ["prepare_world", "filter_advantages@i002"], "run"
    )


def test_a_failure_keeps_what_was_done_and_the_next_run_goes_on(inside: Path) -> None:
    def breaks(name: str, key: str) -> None:
        if key == "i002":
            raise ValueError("broken")
        body(name, key)

    with pytest.raises(PipelineFailed, match="filter_advantages@i002") as failure:
        reproduce(inside, [], Runner(breaks))
    assert isinstance(failure.value.__cause__, ValueError)
    outcomes = reproduce(inside, [], Runner())
    assert outcomes["filter_advantages@i001"] == "up to date"
    assert outcomes["filter_advantages@i002"] == "run"


def test_a_run_that_is_interrupted_says_where_and_that_it_can_go_on(
    inside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(name: str, key: str) -> None:
        if key == "i002":
            raise KeyboardInterrupt
        body(name, key)

    with pytest.raises(KeyboardInterrupt):
        reproduce(inside, [], Runner(interrupted))
    assert capsys.readouterr().err == "stopped at filter_advantages@i002; the same command goes on\n"
    assert reproduce(inside, [], Runner())["filter_advantages@i001"] == "up to date"


def test_a_lock_file_that_a_kill_cut_off_stops_no_run(inside: Path) -> None:
    reproduce(inside, ["prepare_world"], Runner())
    rwlock = inside / ".dvc/tmp/rwlock"
    assert rwlock.exists()
    for left in ("", '{"write": {"data'):
        rwlock.write_text(left)
        assert reproduce(inside, ["prepare_world"], Runner()) == {"prepare_world": "up to date"}


def test_an_entry_of_the_run_cache_that_a_kill_cut_off_stops_no_run(inside: Path) -> None:
    reproduce(inside, ["prepare_world"], Runner())
    entry = next(path for path in inside.glob(".dvc/cache/runs/*/*/*") if "prepare_world" in path.read_text())
    left = entry.with_name(f".{entry.name}.tmp")
    left.write_text(entry.read_text().partition("outs:")[0])
    for path, age in ((left, 10), (entry, 20)):  # DVC reads the newest
        os.utime(path, (time.time() - age,) * 2)
    shutil.rmtree(inside / "data/world")
    (inside / "dvc.lock").unlink()
    assert reproduce(inside, ["prepare_world"], Runner()) == {"prepare_world": "from cache"}


def test_a_lock_whose_holder_is_not_the_process_that_it_names_stops_no_run(inside: Path) -> None:
    """Process 1 of the next container, say, which DVC takes for process 1 of the one that was killed."""
    reproduce(inside, ["prepare_world"], Runner())
    rwlock, other = inside / ".dvc/tmp/rwlock", psutil.Popen(["sleep", "100"])
    try:
        for command in ("dvc repro", "sleep 100"):
            holder = {"pid": other.pid, "cmd": command}
            rwlock.write_text(json.dumps({"write": {str(inside / "data/world"): holder}}))
            if command == "sleep 100":  # the process that it names
                with pytest.raises(PipelineFailed) as busy:
                    reproduce(inside, ["prepare_world"], Runner())
                assert "is busy, it is being blocked by" in str(busy.value.__cause__)
                os.utime(rwlock, (other.create_time() - 60,) * 2)  # another one, which began later
            assert reproduce(inside, ["prepare_world"], Runner()) == {"prepare_world": "up to date"}
    finally:
        other.kill()
        other.wait()


def test_a_dvc_command_that_holds_the_lock_for_longer_than_dvc_waits_ends_no_run(inside: Path) -> None:
    other = make_lock(str(inside / ".dvc/tmp/lock"))
    other.lock()
    threading.Timer(DEFAULT_TIMEOUT + 1, other.unlock).start()
    assert reproduce(inside, ["prepare_world"], Runner()) == {"prepare_world": "run"}


def test_an_attempt_may_be_repeated(inside: Path) -> None:
    failures = iter([True])

    def breaks_once(name: str, key: str) -> None:
        if key == "i001" and next(failures, False):
            raise OSError("for a moment")
        body(name, key)

    class Twice(Runner):
        def attempt(self, stage: str, key: str, attempt: Callable[[], Outcome]) -> None:
            try:
                attempt()
            except OSError:
                attempt()

    assert reproduce(inside, [], Twice(breaks_once))["filter_advantages@i001"] == "run"


def test_with_parallel_work_an_iteration_ends_before_the_next_begins(inside: Path) -> None:
    text = (inside / "dvc.yaml").read_text()
    second = text[text.index("  filter_advantages:") : text.index("  strangers_stage:")]
    second = second.replace("filter_advantages", "collect_rollouts").replace("training_batch", "rollouts")
    (inside / "dvc.yaml").write_text(text.replace("  strangers_stage:", f"{second}  strangers_stage:"))
    due: dict[str, list[bool]] = {}

    def write(name: str, key: str) -> None:
        body(name, key)
        if name == "collect_rollouts":
            Path(f"data/iterations/{key}/training_batch.parquet").rename(f"data/iterations/{key}/rollouts.parquet")
            body("filter_advantages", key)

    class Looks(Runner):
        iteration_by_iteration = True

        def prepare(self, name: str, key: str, is_due: Callable[[str], bool]) -> None:
            asked = ("prepare_world", "collect_rollouts@i003", "collect_rollouts@i009")
            due[f"{name}@{key}"] = [is_due(other) for other in asked]

    reproduce(inside, ["filter_advantages", "collect_rollouts"], Looks(write))
    stages = [f"{name}@i00{i}" for i in (1, 2, 3) for name in ("filter_advantages", "collect_rollouts")]
    assert list(due) == ["prepare_world@", *stages]
    assert due["filter_advantages@i002"] == [False, True, False]
    assert reproduce(inside, [], Runner(write))["collect_rollouts@i003"] == "up to date"


def test_bodies_see_dvcs_variables_for_their_time_only(inside: Path) -> None:
    seen: list[str] = []

    def look(name: str, key: str) -> None:
        seen.append(os.environ["DVC_STAGE"])
        body(name, key)

    reproduce(inside, ["filter_advantages@i001"], Runner(look))
    assert seen == ["prepare_world", "filter_advantages@i001"]
    assert "DVC_STAGE" not in os.environ


def test_the_lock_is_written_by_our_writer_and_has_the_bytes_that_dvc_writes(
    inside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewritten: list[str] = []

    class Counted(LockFile):
        def __init__(self, path: Path) -> None:
            super().__init__(path)
            self.name = path.name

        @contextmanager
        def rewritten(self) -> Iterator[dict[str, Any]]:
            rewritten.append(self.name)
            with super().rewritten() as content:
                yield content

    monkeypatch.setattr(lock_file, "LockFile", Counted)
    reproduce(inside, [], Runner())
    assert rewritten == ["dvc.lock"] * len(ALL)
    written = (inside / "dvc.lock").read_text()
    assert dumps_yaml(loads_yaml(written, typ="rt")) == written


@pytest.mark.parametrize(("command", "keeps_comments"), [(("-m", "dvc"), True), ((str(ROOT / ".ci/bin/dvc"),), False)])
def test_dvc_by_the_environment_writes_the_lock_by_our_writer_in_the_bytes_that_dvc_writes(
    command: tuple[str, ...], keeps_comments: bool, tmp_path: Path
) -> None:
    """A comment tells the two writers apart: DVC's keeps it, at the price of all its time."""
    succeed(tmp_path, "-m", "dvc", "init", "--no-scm", "--quiet")
    do = {"cmd": "echo ${item} > ${item}", "outs": ["${item}"]}
    (tmp_path / "dvc.yaml").write_text(dumps_yaml({"stages": {"say": {"foreach": ["a", "b"], "do": do}}}))
    succeed(tmp_path, *command, "repro", "--quiet", "say@a")
    lock = tmp_path / "dvc.lock"
    lock.write_text(f"# by hand\n{lock.read_text()}")
    succeed(tmp_path, *command, "repro", "--quiet")
    first, _, rest = lock.read_text().partition("\n")
    assert (first == "# by hand") == keeps_comments
    written = rest if keeps_comments else lock.read_text()
    assert "say@b" in written
    assert written == dumps_yaml(loads_yaml(written, typ="rt"))
