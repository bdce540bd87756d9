"""Roots: each kind of broken one gives one error that names file and rule; as one file, never half of one."""

import json
import os
from pathlib import Path

import pytest

from tasks.core.config.splits import SPLITS
from tasks.core.records.files import ArtifactError, digest
from tasks.core.worlds.appworld import layout
from tasks.core.worlds.appworld.kind import AppWorldConfig
from tasks.core.worlds.appworld.layout import verify_root
from tasks.core.worlds.appworld.prepared_root import pack_root, prepare_root, read_prepared_root, unpack_root

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
            task = layout.task_folder(folder, task_id)
            _write(task / "specs.json", json.dumps({"instruction": "Do it.", "db_version": "0.1.0"}))
            for app in layout.DATABASES:
                _write(task / "dbs" / f"{app}.jsonl", "")
            for name in layout.GROUND_TRUTH_FILES:
                _write(layout.ground_truth(folder, task_id) / name, json.dumps({"difficulty": 2}))
    return folder


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


BROKEN = (
    ("data/datasets/dev.txt", None, r"datasets/dev\.txt: missing"),
    ("data/base_dbs/gmail.db", None, r"base_dbs/gmail\.db: missing"),
    ("data/base_dbs/venmo.db", "SQLite", r"base_dbs/venmo\.db: no SQLite database"),
    ("data/api_docs/standard/phone.json", '{"login": ', r"standard/phone\.json: not valid JSON"),
    ("data/tasks/0abc_2/dbs/spotify.jsonl", None, r"0abc_2/dbs/spotify\.jsonl: missing \(half downloaded\?\)"),
    ("data/tasks/3abc_1/ground_truth/evaluation.py", "", r"3abc_1/ground_truth/evaluation\.py: missing or empty"),
    (
        "data/tasks/1abc_1/specs.json",
        '{"instruction": "Do it.", "db_version": "0.2.0"}',
        r"1abc_1/specs\.json: db_version is '0\.2\.0', but the engine reads '0\.1\.0'",
    ),
    ("data/datasets/train.txt", "9fff_1\n", r"datasets/train\.txt: unknown task id 9fff_1"),
    ("data/datasets/train.txt", "0abc_1\n0abc_1\n", r"datasets/train\.txt: duplicate task id 0abc_1"),
    ("data/datasets/test_normal.txt", "0abc_3\n", r"test_normal\.txt: 0abc_3: its scenario is in the split train too"),
    ("data/datasets/train.txt", "\n../../etc\n", r"datasets/train\.txt: line 2: '\.\./\.\./etc' is no task id"),
    ("data/tasks/0abc_1/ground_truth/metadata.json", '{"difficulty": 4}', r"0abc_1/.*/metadata\.json: difficulty is 4"),
)
"""A file of the root, its text (None: it is gone), and the error."""


@pytest.mark.parametrize(("name", "text", "message"), BROKEN)
def test_broken_root_is_one_clear_error(root: Path, name: str, text: str | None, message: str) -> None:
    (root / name).unlink()
    if text is not None:
        (root / name).write_text(text)
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
    (root / "data/datasets/train.txt").write_text("0abc_1\n0abc_1\n")
    config = AppWorldConfig(source="official", root=root)
    with pytest.raises(ArtifactError, match="duplicate"):
        prepare_root(config, 2502, tmp_path / "world")
    assert [path.name for path in tmp_path.iterdir()] == ["root"]


def test_source_and_root_must_agree() -> None:
    with pytest.raises(ValueError, match="root must name the data"):
        AppWorldConfig(source="official")
    with pytest.raises(ValueError, match="be null when it is authored"):
        AppWorldConfig(root=Path("somewhere"))


FILES = {"data/datasets/train.txt": "a_1\n", "data/tasks/a_1/specs.json": "{}", "data/tasks/a_1/dbs/admin.jsonl": ""}


def _written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        _write(root / name, text)
    return root


def _files_of(root: Path) -> dict[str, str]:
    return {path.relative_to(root).as_posix(): path.read_text() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    pack_root(_written(tmp_path / "root", FILES), tmp_path / "root.tar")
    return tmp_path / "root.tar"


def test_equal_files_of_another_day_and_order_have_the_same_bytes(archive: Path, tmp_path: Path) -> None:
    other = _written(tmp_path / "other", dict(reversed(FILES.items())))
    os.utime(other / "data/datasets/train.txt", (5, 5))
    pack_root(other, tmp_path / "other.tar")
    assert (tmp_path / "other.tar").read_bytes() == archive.read_bytes()


def test_a_root_comes_back_whole_and_serves_again(archive: Path, tmp_path: Path) -> None:
    root = unpack_root(archive, tmp_path / "roots")
    assert _files_of(root) == FILES
    inode = (root / "data/datasets/train.txt").stat().st_ino
    assert unpack_root(archive, tmp_path / "roots") == root
    assert (root / "data/datasets/train.txt").stat().st_ino == inode


def test_an_edited_or_missing_file_is_written_anew(archive: Path, tmp_path: Path) -> None:
    root = unpack_root(archive, tmp_path / "roots")
    (root / "data/datasets/train.txt").write_text("b_1\n")  # of the same size
    assert _files_of(unpack_root(archive, tmp_path / "roots")) == FILES
    (root / "data/tasks/a_1/specs.json").unlink()
    assert _files_of(unpack_root(archive, tmp_path / "roots")) == FILES


def test_roots_of_other_bytes_have_folders_of_their_own(archive: Path, tmp_path: Path) -> None:
    pack_root(_written(tmp_path / "less", {"data/datasets/train.txt": "a_1\n"}), tmp_path / "less.tar")
    roots = {unpack_root(one, tmp_path / "roots") for one in (archive, tmp_path / "less.tar")}
    assert len(roots) == 2


def test_a_missing_or_damaged_archive_is_one_clear_error(archive: Path, tmp_path: Path) -> None:
    archive.write_bytes(archive.read_bytes()[:700])
    with pytest.raises(ArtifactError, match=r"root\.tar: damaged \(.*\); delete it"):
        unpack_root(archive, tmp_path / "roots")
    archive.unlink()
    with pytest.raises(ArtifactError, match=r"root\.tar: missing; run"):
        unpack_root(archive, tmp_path / "roots")
