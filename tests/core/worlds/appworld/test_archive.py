"""Roots as one file: the same bytes for the same files, and a folder that is never half of one or an edited one."""

import os
from pathlib import Path

import pytest

from tasks.core.records.files import ArtifactError
from tasks.core.worlds.appworld.root.archive import pack_root, unpack_root

FILES = {"data/datasets/train.txt": "a_1\n", "data/tasks/a_1/specs.json": "{}", "data/tasks/a_1/dbs/admin.jsonl": ""}


def _write(root: Path, names: list[str]) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(FILES[name])
    return root


def _files(root: Path) -> dict[str, str]:
    return {path.relative_to(root).as_posix(): path.read_text() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    pack_root(_write(tmp_path / "root", list(FILES)), tmp_path / "root.tar")
    return tmp_path / "root.tar"


def test_equal_files_of_another_day_and_order_have_the_same_bytes(archive: Path, tmp_path: Path) -> None:
    other = _write(tmp_path / "other", list(reversed(FILES)))
    os.utime(other / "data/datasets/train.txt", (5, 5))
    pack_root(other, tmp_path / "other.tar")
    assert (tmp_path / "other.tar").read_bytes() == archive.read_bytes()


def test_a_root_comes_back_whole_and_serves_again(archive: Path, tmp_path: Path) -> None:
    root = unpack_root(archive, tmp_path / "roots")
    assert _files(root) == FILES
    inode = (root / "data/datasets/train.txt").stat().st_ino
    assert unpack_root(archive, tmp_path / "roots") == root
    assert (root / "data/datasets/train.txt").stat().st_ino == inode


def test_an_edited_or_missing_file_is_written_anew(archive: Path, tmp_path: Path) -> None:
    root = unpack_root(archive, tmp_path / "roots")
    (root / "data/datasets/train.txt").write_text("b_1\n")  # of the same size
    assert _files(unpack_root(archive, tmp_path / "roots")) == FILES
    (root / "data/tasks/a_1/specs.json").unlink()
    assert _files(unpack_root(archive, tmp_path / "roots")) == FILES


def test_roots_of_other_bytes_have_folders_of_their_own(archive: Path, tmp_path: Path) -> None:
    pack_root(_write(tmp_path / "less", list(FILES)[:2]), tmp_path / "less.tar")
    roots = {unpack_root(one, tmp_path / "roots") for one in (archive, tmp_path / "less.tar")}
    assert len(roots) == 2


def test_a_missing_or_damaged_archive_is_one_clear_error(archive: Path, tmp_path: Path) -> None:
    archive.write_bytes(archive.read_bytes()[:700])
    with pytest.raises(ArtifactError, match=r"root\.tar: damaged \(.*\); delete it"):
        unpack_root(archive, tmp_path / "roots")
    archive.unlink()
    with pytest.raises(ArtifactError, match=r"root\.tar: missing; run"):
        unpack_root(archive, tmp_path / "roots")
