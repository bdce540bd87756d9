"""The stages behind an artifact, broken links, and the recorded run that made it."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
import yaml

from flows.cli.lineage import origin_lines
from tasks.core.config.params import Params
from tasks.core.lineage.dvc_lock import DvcLock, LockedStage
from tasks.core.lineage.git_state import GitState, git_state
from tasks.core.lineage.integrity import broken_artifact, dvc_md5
from tasks.core.lineage.params_and_metrics import iteration_numbers, warning_tags
from tasks.core.lineage.trace import (
    Provenance,
    UnknownSubject,
    broken_joints,
    find_origin,
    find_subject,
    other_values,
    upstream_stages,
)
from tasks.core.records.layout import Layout
from tasks.core.records.training import CollapseWarning
from tasks.record_lineage.recording import Pipeline, record_pipeline


def stage(
    name: str, deps: dict[str, str], outs: dict[str, str], params: Mapping[str, str] = MappingProxyType({})
) -> LockedStage:
    return LockedStage(name, deps, outs, params)


PLAYED = {"data/selection.json:iteration": "i001", "data/stage_versions.json:score.code": "c"}
LOCK = DvcLock(
    (
        stage("score@test_normal", {"data/world": "w"}, {"data/scores/n.json": "n"}, PLAYED),
        stage("select_checkpoint", {"data/evaluations": "e.dir"}, {"data/selection.json": "s"}),
        stage("evaluate_policy@i001", {"data/iterations/i001/policy": "p1"}, {"data/evaluations/i001.json": "e1"}),
        stage("update_policy@i001", {"data/iterations/i000/policy": "p0"}, {"data/iterations/i001/policy": "p1"}),
        stage("update_policy@i002", {"data/iterations/i001/policy": "p1"}, {"data/iterations/i002/policy": "p2"}),
        stage("prepare_policy", {"data/base_policies": "b", "tasks": "c"}, {"data/iterations/i000/policy": "p0"}),
        stage("prepare_world", {}, {"data/world": "w"}),
    )
)


def test_a_score_is_followed_through_folders_to_its_sources_and_no_further() -> None:
    names = [one.name for one in upstream_stages(LOCK, "data/scores/n.json")]
    assert set(names) == {one.name for one in LOCK.stages} - {"update_policy@i002"}
    assert names.index("score@test_normal") == 0
    assert names.index("evaluate_policy@i001") < names.index("update_policy@i001") < names.index("prepare_policy")


def test_a_file_within_an_artifact_and_a_folder_above_it_are_followed_too() -> None:
    assert [one.name for one in upstream_stages(LOCK, "data/world/train.jsonl")] == ["prepare_world"]
    assert {one.name for one in upstream_stages(LOCK, "data/iterations/i001")} == {
        "update_policy@i001",
        "prepare_policy",
    }
    assert upstream_stages(LOCK, "data/none") == []


def test_a_stage_that_read_another_version_than_the_present_one_is_a_broken_joint() -> None:
    stale = stage("update_policy@i001", {"data/iterations/i000/policy": "old"}, {"data/iterations/i001/policy": "p1"})
    lock = DvcLock(tuple(stale if one.name == stale.name else one for one in LOCK.stages))
    (line,) = broken_joints(lock, upstream_stages(lock, "data/iterations/i002"))
    assert line.startswith("update_policy@i001 read data/iterations/i000/policy as old, but dvc.lock has p0")
    assert not list(broken_joints(LOCK, list(LOCK.stages)))


def test_a_score_of_another_policy_than_the_selected_one_is_a_broken_link(tmp_path: Path) -> None:
    selection = Layout(tmp_path).selection
    selection.parent.mkdir()
    selection.write_text('{"iteration": "i001", "candidates": ["i000", "i001"]}')
    assert list(other_values(LOCK.stages, tmp_path)) == []
    selection.write_text('{"iteration": "i002"}')
    (line,) = other_values(LOCK.stages, tmp_path)
    assert line.startswith("score@test_normal read iteration of data/selection.json as i001, it is i002 now")
    selection.unlink()
    assert len(list(other_values(LOCK.stages, tmp_path))) == 1


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Run by DVC a stage that writes a nested folder and a file; return the project and DVC's md5s."""
    root = tmp_path_factory.mktemp("tracked")
    files = {"data/w/a/x": "x", "data/w/a-b": "y", "data/w/B": "z", "data/f": "y"}
    command = " && ".join(["mkdir -p data/w/a", *(f"printf {text} > {name}" for name, text in files.items())])
    definition = {"stages": {"make": {"cmd": command, "outs": ["data/w", "data/f"]}}}
    (root / "dvc.yaml").write_text(yaml.safe_dump(definition))
    for arguments in (["init", "--no-scm", "-q"], ["repro", "-q"]):
        subprocess.run([sys.executable, "-m", "dvc", *arguments], cwd=root, check=True)
    outs = yaml.safe_load((root / "dvc.lock").read_text())["stages"]["make"]["outs"]
    return root, {out["path"]: out["md5"] for out in outs}


def test_digests_are_those_of_dvc_and_whole_artifacts_are_not_broken(tracked: tuple[Path, dict[str, str]]) -> None:
    root, outs = tracked
    assert {path: dvc_md5(root / path) for path in outs} == outs
    assert not [line for path, md5 in outs.items() for line in broken_artifact(root, cache(root), path, md5)]


def test_each_way_to_break_an_artifact_is_named(tracked: tuple[Path, dict[str, str]]) -> None:
    root, outs = tracked
    listing = cache(root) / outs["data/w"][:2] / outs["data/w"][2:]
    entry = next(entry for entry in json.loads(listing.read_text()) if entry["relpath"] == "a/x")
    inner = cache(root) / entry["md5"][:2] / entry["md5"][2:]
    replace(root / "data" / "w" / "a" / "x", b"edited")
    (line,) = broken_artifact(root, cache(root), "data/w", outs["data/w"])
    assert line.startswith("data/w: edited: its md5 is ")
    replace(inner, b"rotten")
    lines = list(broken_artifact(root, cache(root), "data/w", outs["data/w"]))
    assert lines[1].startswith(f"data/w/a/x: its cache file {inner} is corrupt")
    inner.unlink()
    (root / "data" / "f").unlink()
    assert "is missing; `dvc pull` fetches it" in list(broken_artifact(root, cache(root), "data/w", outs["data/w"]))[1]
    (line,) = broken_artifact(root, cache(root), "data/f", outs["data/f"])
    assert line == "data/f: missing; `dvc checkout data/f` restores it"


def cache(root: Path) -> Path:
    return root / ".dvc" / "cache" / "files" / "md5"


def replace(path: Path, content: bytes) -> None:
    """Put a new file in place of a read-only (perhaps hard-linked) file."""
    path.unlink()
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "path", "fact"),
    [
        ("i002", "data/iterations/i002/policy", None),
        ("selected", "data/iterations/i002/policy", None),
        ("data/report/", "data/report", None),
        ("test_normal.tgc", "data/scores/test_normal.json", "test_normal.tgc = 70"),
        ("test_normal/tgc", "data/scores/test_normal.json", "test_normal.tgc = 70"),
        ("dev.tgc", "data/evaluations/i002.json", "dev.tgc = 40"),
        ("dev/tgc", "data/evaluations/i002.json", "dev.tgc = 40"),
        ("i003.mean_return", "data/iterations/i003/metrics.json", "i003.mean_return = 0.6"),
        ("i002.dev.sgc", "data/evaluations/i002.json", "i002.dev.sgc = 10"),
        (
            "test_normal:test_normal_a1:1",
            "data/scores/test_normal_rollouts.parquet",
            "task test_normal_a1, scenario test_normal_a, difficulty 1, seed 1",
        ),
    ],
)
def test_subjects_by_name(layout: Layout, name: str, path: str, fact: str | None) -> None:
    found = find_subject(name, layout)
    assert found.path == path
    assert fact is None or fact in found.facts


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("test_normal.tcg", "has no number 'tcg'; it has: .*tgc"),
        ("nowhere.tgc", "is not a metric; expected a checkpoint"),
        ("test_normal:b9:0", "has no rollout 0 of 'b9'; its tasks: test_normal_a1, "),
        ("dev:a:0", "is not a rollout; expected a checkpoint"),
    ],
)
def test_unknown_subjects_list_the_known_ones(layout: Layout, name: str, message: str) -> None:
    with pytest.raises(UnknownSubject, match=message):
        find_subject(name, layout)


def test_an_old_artifacts_origin_is_the_recorded_one(pipeline: Pipeline, params: Params) -> None:
    root, lock = pipeline.layout.root, pipeline.lock
    record_pipeline(pipeline)
    then = git_state(root)
    identity = ("-c", "user.name=t", "-c", "user.email=t@t")
    subprocess.run(["git", *identity, "commit", "-q", "--allow-empty", "-m", "later"], cwd=root, check=True)
    (root / "params.yaml").write_text("seed: 1\n")
    now = git_state(root)
    assert now == GitState(now.commit, dirty=True) and now.commit != then.commit

    origin = find_origin(params.lineage, root, lock.task_versions)
    assert origin is not None and (origin.git, origin.params["seed"]) == (then, "0")
    assert find_origin(params.lineage, root, lock.task_versions | {"report": "0" * 64}) == origin
    today = Params.model_validate({**params.model_dump(mode="json"), "seed": 1})
    lines = list(origin_lines(provenance(lock), origin, today, root))
    assert f"code: commit {then.commit} (here is commit {now.commit} with changes)" in lines
    assert "  seed = 0 (here: 1)" in lines and "  update.epochs = 2" in lines
    assert f"parameters: {pipeline.source_tags['params_digest']}" in lines
    assert find_origin(params.lineage, root, lock.task_versions | {"score": "0" * 64}) is None


def test_an_artifact_without_a_record_has_no_origin(pipeline: Pipeline, params: Params, tmp_path: Path) -> None:
    root, lock = pipeline.layout.root, pipeline.lock
    assert find_origin(params.lineage, root, lock.task_versions) is None
    assert find_origin(params.lineage, tmp_path / "elsewhere", lock.task_versions) is None
    lines = list(origin_lines(provenance(lock), None, params, root))
    assert "in no finished run that MLflow knows" in lines[1] and git_state(root).commit in lines[2]
    assert not any(" = " in line for line in lines)


def provenance(lock: DvcLock) -> Provenance:
    return Provenance(lock.stages, (), lock.sources, ())


WARNINGS = [CollapseWarning(rule=rule, iteration=i, evidence="low") for rule, i in (("a", 2), ("b", 2), ("a", 3))]


def test_an_iteration_has_its_own_warnings_as_a_count_and_a_run_all_as_tags(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert [iteration_numbers(layout, f"i00{i}", WARNINGS) for i in range(4)] == [
        {},
        {"update/warnings": 0},
        {"update/warnings": 2},
        {"update/warnings": 1},
    ]
    assert warning_tags(WARNINGS) == {"warning.i002.a": "low", "warning.i002.b": "low", "warning.i003.a": "low"}
