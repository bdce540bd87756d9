"""How far a run is, read from files that a run leaves: its own iterations, the pace, a chart, and who is at work."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.cli.watch import chart, page
from flows.dag.checkout_lock import LOCK, checkout_lock, holder_of
from flows.hosts_at_work import HOSTS, hosts_at_work, shown_hosts
from flows.params_file import write_params
from flows.profile_stack import stacked
from flows.run_progress import Progress, read_progress, stage_line
from tasks.core.config.params import load_params
from tasks.core.lineage.integrity import dvc_md5
from tasks.core.records.documents import write_document
from tasks.core.records.files import read_json, write_json
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import Attestation, RunManifest, StageVersion, StageVersions
from tests.finished_run import evaluation, metrics

NOW, BEFORE = StageVersion(code="a" * 16, params="b" * 16), StageVersion(code="c" * 16, params="b" * 16)
STAGES = ("collect_rollouts", "update_policy", "evaluate_policy")


class Run:
    """A run of three stages, recorded in dvc.lock as DVC does; an artifact's md5 is a word."""

    def __init__(self, layout: Layout) -> None:
        self._layout, self._stages = layout, dict[str, Any]()

    def record(self, stage: str, key: str, deps: dict[str, str], outs: dict[str, str], version: StageVersion) -> None:
        files = {
            kind: [{"path": path, "md5": md5} for path, md5 in each.items()]
            for kind, each in (("deps", deps), ("outs", outs))
        }
        digests = {f"{stage}.{part}": digest for part, digest in version}
        self._stages[f"{stage}@{key}"] = {**files, "params": {"data/stage_versions.json": digests}}
        (self._layout.root / "dvc.lock").write_text(yaml.safe_dump({"stages": self._stages}))

    def collect(self, key: str, made: str = "", version: StageVersion = NOW) -> None:
        before = {f"{int(key[1:]) - 1}/policy": made}
        self.record("collect_rollouts", key, before, {f"{key}/rollouts": made}, version)

    def update(self, key: str, ended: float, made: str = "", version: StageVersion = NOW) -> None:
        path = self._layout.attestation("update_policy", key)
        write_document(path, Attestation(stage="update_policy", key=key, version=version, outs={}))
        os.utime(path, (ended, ended))
        self.record("update_policy", key, {f"{key}/rollouts": made}, {f"{int(key[1:])}/policy": made}, version)

    def evaluate(self, key: str, tgc: float, made: str = "", version: StageVersion = NOW) -> None:
        path = self._layout.evaluation(key)
        write_document(path, evaluation(key, tgc))
        outs = {path.relative_to(self._layout.root).as_posix(): dvc_md5(path)}
        self.record("evaluate_policy", key, {f"{int(key[1:])}/policy": made}, outs, version)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Return a checkout in which a run of eight iterations has begun and nothing is done."""
    layout = Layout(tmp_path)
    write_params(layout.params, {**stacked(["default"]), "iterations": 8, "evaluation": {"every": 2}})
    write_document(layout.stage_versions, StageVersions(dict.fromkeys(STAGES, NOW)))
    params, digest = load_params(layout.params).model_dump(mode="json"), "0" * 64
    write_document(layout.manifest, RunManifest(params=params, params_file=digest, files={}, stages={}))
    return layout


def test_iterations_are_counted_and_the_rest_takes_as_long_as_most_of_the_latest(layout: Layout) -> None:
    """By hand: iterations of 10 s, 30 s and, over a night, 9000 s; five are left at 30 s."""
    run = Run(layout)
    for key, ended in (("i001", 1000.0), ("i002", 1010.0), ("i003", 1040.0), ("i004", 10040.0)):
        run.collect(key)
        run.update(key, ended)
    run.evaluate("i000", 10.0)
    run.evaluate("i002", 40.0)
    found = read_progress(layout.root)
    assert (found.total, found.ended, found.left_s) == (8, [1000.0, 1010.0, 1040.0, 10040.0], 120.0)
    assert found.dev_tgc == {0: 10.0, 2: 40.0}
    run.evaluate("i004", 90.0)
    layout.evaluation("i004").write_text("of a stage that is at work again")
    assert read_progress(layout.root).dev_tgc == {0: 10.0, 2: 40.0}


@pytest.mark.parametrize("again", ["other rollouts", "another update", "another evaluation"])
def test_what_the_run_before_left_is_not_shown(again: str, layout: Layout) -> None:
    """The run before made all three iterations; the present one has played the first, or played and updated it."""
    run = Run(layout)
    for key in ("i001", "i002", "i003"):
        run.collect(key, "before")
        run.update(key, 1000.0, "before", BEFORE if again == "another update" else NOW)
        run.evaluate(key, 50.0, "before", BEFORE if again == "another evaluation" else NOW)
    if again == "another evaluation":
        assert (len(read_progress(layout.root).ended), read_progress(layout.root).dev_tgc) == (3, {})
        return
    run.collect("i001", "now")
    assert (read_progress(layout.root).ended, read_progress(layout.root).dev_tgc) == ([], {})
    run.update("i001", 2000.0, "now")
    assert (read_progress(layout.root).ended, read_progress(layout.root).dev_tgc) == ([2000.0], {})


def test_machines_are_shown_while_the_process_that_uses_them_lives(layout: Layout) -> None:
    with shown_hosts(layout.root) as shown:
        for count in (1, 2):
            shown({"a": "trains, rank 0", "b (10.0.0.2)": f"plays {count} shards"})
        told = page(read_progress(layout.root)).splitlines()[2:]
        assert told == ["  a: trains, rank 0", "  b (10.0.0.2): plays 2 shards"]
        written = read_json(layout.root / HOSTS)
    assert hosts_at_work(layout.root) == {}
    write_json(layout.root / HOSTS, {**written, "process": [written["process"][0], 1]})
    assert hosts_at_work(layout.root) == {}, "of a process that has ended, whose number another one has"


def test_each_iteration_and_each_evaluation_has_a_line(layout: Layout) -> None:
    """By hand: the second update ended 14 s after the first, and six more at that pace take 84 s."""
    run = Run(layout)
    for key, ended, mean_return in (("i001", 1000.0, 0.5), ("i002", 1014.0, 0.885)):
        run.collect(key)
        write_document(layout.metrics(key), metrics(mean_return=mean_return))
        run.update(key, ended)
    assert stage_line(layout, "update_policy", "i001") == "i001 of 8: return 0.50"
    line = stage_line(layout, "update_policy", "i002")
    assert line == "i002 of 8: return 0.89, 14 s, about 1 min 24 s left of training"
    write_document(layout.evaluation("i002"), evaluation("i002", 86.7))
    dev = stage_line(layout, "evaluate_policy", "i002")
    assert dev is not None and dev.startswith("i002: dev TGC 86.7, SGC ")
    assert stage_line(layout, "filter_tasks", "") is None and stage_line(layout, "update_policy", "i003") is None


def test_before_anything_has_run_there_is_nothing_to_show(layout: Layout) -> None:
    layout.stage_versions.unlink()
    assert page(read_progress(layout.root)) == "default in pocketworld: 0 of 8 iterations\nnothing is at work"


def test_who_holds_the_checkout_is_at_work_until_it_ends(tmp_path: Path) -> None:
    lock = tmp_path / LOCK
    assert holder_of(lock) is None
    with checkout_lock(tmp_path, "update_policy@i003"):
        assert holder_of(lock) == f"update_policy@i003 (process {os.getpid()})"
    assert holder_of(lock) is None
    lock.write_text(f"loopline run (process {2**22 + 1})\n{2**22 + 1} 7\n")
    assert holder_of(lock) is None
    lock.write_text(f"loopline run (process {os.getpid()})\n{os.getpid()} 7\n")
    assert holder_of(lock) is None, "another process of the same number"


def test_the_time_left_is_shown_while_a_run_is_at_work() -> None:
    progress = Progress("default in pocketworld", 10, [0.0, 60.0, 120.0], {}, "loopline run (process 7)")
    assert page(progress).splitlines() == [
        "default in pocketworld: 3 of 10 iterations, about 7 min 0 s left until the last update",
        "at work: loopline run (process 7)",
    ]


def test_the_chart_has_a_point_for_each_score_between_the_lowest_and_the_highest() -> None:
    lines = [*chart({0: 20.0, 2: 80.0, 4: 50.0}, last=4)]
    assert lines[0] == f"  80.0 │{' ' * 30}●" and lines[9] == "  20.0 │●"
    assert sum(line.count("●") for line in lines) == 3
    assert lines[-2:] == [f"{'':6} └{'─' * 60}", f"{'':8}0{'':58}4"]


@pytest.mark.parametrize("last", [0, 1, 300])
def test_a_chart_of_any_length_fits_a_terminal(last: int) -> None:
    lines = [*chart({0: 5.0, last: 5.0}, last)]
    assert len(lines) == 12 and max(map(len, lines)) <= 79
