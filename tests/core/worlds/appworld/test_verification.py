"""Bad data: each kind of broken root gives one error that names the file and the rule. Needs no engine."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.core.config.splits import SPLITS
from tasks.core.records.files import ArtifactError, digest
from tasks.core.worlds.appworld.kind import AppWorldConfig
from tasks.core.worlds.appworld.root import layout, prepare_root, read_prepared_root, verify_root

TASKS = {split: [f"{number}abc_{place}" for place in (1, 2, 3)] for number, split in enumerate(SPLITS)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The smallest root that verifies: the right files, with next to nothing in them."""
    folder = tmp_path / "root"
    for app in layout.DATABASES:
        _write(layout.base_database(folder, app), "SQLite format 3\x00")
    for app in layout.APPS:
        _write(layout.api_docs(folder, app), "{}")
    for split, ids in TASKS.items():
        _write(layout.dataset(folder, split), "".join(f"{task_id}\n" for task_id in ids))
        for task_id in ids:
            _write_task(folder, task_id)
    return folder


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _write_task(root: Path, task_id: str) -> None:
    folder = layout.task_folder(root, task_id)
    _write(folder / "specs.json", json.dumps({"instruction": "Do it.", "db_version": "0.1.0"}))
    for app in layout.DATABASES:
        _write(folder / "dbs" / f"{app}.jsonl", "")
    for name in layout.GROUND_TRUTH_FILES:
        _write(layout.ground_truth(root, task_id) / name, json.dumps({"difficulty": 2}))


def _remove_dataset(root: Path) -> None:
    layout.dataset(root, "dev").unlink()


def _cut_database(root: Path) -> None:
    layout.base_database(root, "venmo").write_bytes(b"SQLite")


def _remove_database(root: Path) -> None:
    layout.base_database(root, "gmail").unlink()


def _cut_docs(root: Path) -> None:
    layout.api_docs(root, "phone").write_text('{"login": ')


def _cut_task(root: Path) -> None:
    (layout.task_folder(root, "0abc_2") / "dbs" / "spotify.jsonl").unlink()


def _empty_truth(root: Path) -> None:
    (layout.ground_truth(root, "3abc_1") / "evaluation.py").write_text("")


def _other_version(root: Path) -> None:
    path = layout.task_folder(root, "1abc_1") / "specs.json"
    path.write_text(json.dumps({"instruction": "Do it.", "db_version": "0.2.0"}))


def _unknown_id(root: Path) -> None:
    _append(root, "train", "9fff_1")


def _duplicate(root: Path) -> None:
    _append(root, "train", "0abc_1")


def _leaking_scenario(root: Path) -> None:
    _append(root, "test_normal", "0abc_3")


def _no_id(root: Path) -> None:
    _append(root, "train", "../../etc")


def _difficulty(root: Path) -> None:
    (layout.ground_truth(root, "0abc_1") / "metadata.json").write_text('{"difficulty": 4}')


def _append(root: Path, split: str, task_id: str) -> None:
    with layout.dataset(root, split).open("a") as stream:
        stream.write(f"{task_id}\n")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_remove_dataset, r"datasets/dev\.txt: missing"),
        (_remove_database, r"base_dbs/gmail\.db: missing"),
        (_cut_database, r"base_dbs/venmo\.db: no SQLite database"),
        (_cut_docs, r"standard/phone\.json: not valid JSON"),
        (_cut_task, r"0abc_2/dbs/spotify\.jsonl: missing \(half downloaded\?\)"),
        (_empty_truth, r"3abc_1/ground_truth/evaluation\.py: missing or empty"),
        (_other_version, r"1abc_1/specs\.json: db_version is '0\.2\.0', but the engine reads '0\.1\.0'"),
        (_unknown_id, r"datasets/train\.txt: unknown task id 9fff_1"),
        (_duplicate, r"datasets/train\.txt: duplicate task id 0abc_1"),
        (_leaking_scenario, r"datasets/test_normal\.txt: 0abc_3: its scenario is in the split train too"),
        (_no_id, r"datasets/train\.txt: line 4: '\.\./\.\./etc' is no task id"),
        (_difficulty, r"0abc_1/ground_truth/metadata\.json: difficulty is 4"),
    ],
)
def test_broken_root_is_one_clear_error(root: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(root)
    with pytest.raises(ArtifactError, match=message):
        verify_root(root)


def test_missing_root_and_data_folder_given_as_root(root: Path) -> None:
    with pytest.raises(ArtifactError, match=r"nowhere: no such folder; get the official data"):
        verify_root(root / "nowhere")
    with pytest.raises(ArtifactError, match=rf"no data folder; give its parent {root}"):
        verify_root(root / "data")


def test_denied_tasks_are_in_no_split_and_are_reported(root: Path) -> None:
    report = verify_root(root, ["0abc_2", "5fff_1"])
    assert [task.task_id for task in report.tasks["train"]] == ["0abc_1", "0abc_3"]
    assert (report.denied, report.unknown_denied, report.listed["train"]) == (("0abc_2",), ("5fff_1",), 3)
    assert "without 0abc_2" in report.summary and "5fff_1" in report.summary
    with pytest.raises(ArtifactError, match="denylist: 'all' is no task id"):
        verify_root(root, ["all"])


def test_official_root_is_prepared_by_reference_and_read_again(root: Path, tmp_path: Path) -> None:
    config = AppWorldConfig(source="official", root=root, denylist=("1abc_1",))
    assert not prepare_root(config, 2502, tmp_path / "world").official_counts
    prepared = read_prepared_root(config, tmp_path / "world")
    assert prepared.root == root
    assert [task.task_id for task in prepared.tasks["dev"]] == ["1abc_2", "1abc_3"]
    assert prepared.tasks["train"][0].difficulty == 2


def test_each_file_of_an_official_root_is_in_the_artifact_of_the_world(root: Path, tmp_path: Path) -> None:
    """Episodes read it in place: DVC knows of it by data/world alone."""
    config = AppWorldConfig(source="official", root=root)
    digests = []
    for text in ("a", "a", "b"):
        (root / "data" / "base_dbs" / "notes.txt").write_text(text)
        prepare_root(config, 2502, tmp_path / "world")
        digests.append(digest(tmp_path / "world"))
    assert digests[0] == digests[1] != digests[2]


def test_broken_official_root_leaves_no_world(root: Path, tmp_path: Path) -> None:
    _duplicate(root)
    config = AppWorldConfig(source="official", root=root)
    with pytest.raises(ArtifactError, match="duplicate"):
        prepare_root(config, 2502, tmp_path / "world")
    assert [path.name for path in tmp_path.iterdir()] == ["root"]


def test_source_and_root_must_agree() -> None:
    with pytest.raises(ValueError, match="root must name the data"):
        AppWorldConfig(source="official")
    with pytest.raises(ValueError, match="be null when it is authored"):
        AppWorldConfig(root=Path("somewhere"))
