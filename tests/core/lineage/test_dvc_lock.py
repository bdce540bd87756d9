"""Reading dvc.lock: files made by hand, and one that DVC wrote."""

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks.core.lineage.dvc_lock import DvcLock, read_lock
from tasks.core.records.files import ArtifactError


def write(root: Path, stages: dict[str, Any]) -> Path:
    path = root / "dvc.lock"
    path.write_text(yaml.safe_dump({"schema": "2.0", "stages": stages}, sort_keys=False))
    return path


def entry(path: str, md5: str) -> dict[str, str]:
    return {"path": path, "hash": "md5", "md5": md5}


def lock(root: Path, **stages: Any) -> DvcLock:
    named = {name.replace("__", "@"): value for name, value in stages.items()}
    return read_lock(write(root, named), ["i001"], ["i000", "i001"])


def test_stages_of_an_earlier_longer_run_are_skipped(tmp_path: Path) -> None:
    outs = {"outs": [entry("data/x", "0")]}
    found = lock(
        tmp_path,
        update_policy__i001=outs,
        update_policy__i002=outs,
        evaluate_policy__i000=outs,
        evaluate_policy__i002=outs,
        score__test_normal=outs,
        report=outs,
    )
    assert [stage.name for stage in found.stages] == ["update_policy@i001", "evaluate_policy@i000", "score@test_normal"]


def test_side_tasks_are_included_on_request(tmp_path: Path) -> None:
    names = ["version_stages", "score@test_normal", "tabulate_curves", "report", "record_lineage"]
    path = write(tmp_path, {name: {"outs": [entry(f"data/{name}", "0")]} for name in names})
    assert [stage.name for stage in read_lock(path, [], [], side_tasks=True).stages] == names
    assert [stage.name for stage in read_lock(path, [], []).stages] == names[1:2]


def test_collections_of_a_run_that_collected_more_often_are_skipped(tmp_path: Path) -> None:
    names = [f"{stage}@i00{i}" for i in (1, 2) for stage in ("collect_rollouts", "filter_advantages", "update_policy")]
    path = write(tmp_path, {name: {"outs": [entry(f"data/{name}", "0")]} for name in names})
    found = read_lock(path, ["i001", "i002"], [], collected=["i001"])
    assert [stage.name for stage in found.stages] == [*names[:3], "update_policy@i002"]


def test_stages_of_an_earlier_method_are_skipped(tmp_path: Path) -> None:
    names = [f"{stage}@i001" for stage in ("collect_rollouts", "filter_advantages", "search_trees", "pair_turns")]
    path = write(tmp_path, {name: {"outs": [entry(f"data/{name}", "0")]} for name in names})
    for maps, found in (({"collected": ["i001"]}, names[:2]), ({"collected": [], "searched": ["i001"]}, names[2:])):
        assert [stage.name for stage in read_lock(path, ["i001"], [], **maps).stages] == found


def test_sources_are_artifacts_that_no_stage_wrote(tmp_path: Path) -> None:
    deps = [entry("data/base_policies", "b.dir"), entry("data/world/a.json", "a"), entry("data/iterations", "i.dir")]
    found = lock(
        tmp_path,
        prepare_world={"outs": [entry("data/world", "w.dir")]},
        update_policy__i001={"outs": [entry("data/iterations/i001/policy", "p.dir")]},
        score__test_normal={"deps": [*deps, entry("tasks/core/config/params.py", "c")]},
    )
    assert found.sources == {"data/base_policies": "b.dir"}


@pytest.mark.parametrize(
    ("path", "same"),
    [
        ("data/iterations/i001/update_timings.json", True),
        ("data/iterations", True),
        ("data/iterations/i001/policy", False),
    ],
)
def test_only_wall_clock_artifacts_leave_the_digest_alone(tmp_path: Path, path: str, same: bool) -> None:
    before = lock(tmp_path, update_policy__i001={"outs": [entry(path, "1")]}).digest
    after = lock(tmp_path, update_policy__i001={"outs": [entry(path, "2")]}).digest
    assert (before == after) is same


def test_a_parameter_is_part_of_the_digest(tmp_path: Path) -> None:
    one = lock(tmp_path, score__test_normal={"params": {"params.yaml": {"seed": 0}}}).digest
    other = lock(tmp_path, score__test_normal={"params": {"params.yaml": {"seed": 1}}}).digest
    assert one != other


def test_task_versions_come_from_the_stage_versions_file(tmp_path: Path) -> None:
    params = {
        "data/stage_versions.json": {"score.code": "a" * 16, "score.params": "b" * 16},
        "params.yaml": {"seed": 0},
    }
    assert lock(tmp_path, score__test_normal={"params": params}).task_versions == {"score": "a" * 16 + "b" * 16}


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "missing"), ("a: [", "not valid YAML"), ("[]", "no `stages`"), ("stages: 3", "no `")],
)
def test_a_bad_lock_is_refused_by_name(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "dvc.lock"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ArtifactError, match=rf"dvc\.lock: .*{message}"):
        read_lock(path, [], [])


def test_reading_a_lock_that_dvc_wrote(tmp_path: Path) -> None:
    """The contract with DVC: a file's md5 is the file's, a folder's ends in .dir, parameters are listed by file."""
    (tmp_path / "params.yaml").write_text("seed: 3\n")
    command = "mkdir -p data/w && printf x > data/w/a && printf y > data/b"
    stage = {"cmd": command, "params": ["seed"], "outs": ["data/w", "data/b"]}
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"score": stage}}))
    for arguments in (["init", "--no-scm", "-q"], ["repro", "-q"]):
        subprocess.run([sys.executable, "-m", "dvc", *arguments], cwd=tmp_path, check=True)
    (locked,) = read_lock(tmp_path / "dvc.lock", [], []).stages
    assert locked.outs["data/b"] == hashlib.md5(b"y").hexdigest()
    assert locked.outs["data/w"].endswith(".dir")
    assert locked.params == {"params.yaml:seed": 3}
