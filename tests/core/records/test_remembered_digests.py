"""A digest is computed once for all processes, and again as soon as the file is another."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.core.policies.checkpoint_files import policy_digest
from tasks.core.records.files import KEPT_FROM, STATE_FOLDER, fingerprint, remembered_digest
from tests.opened_files import counted_opens

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(path: Path, content: bytes) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def test_a_file_is_read_once_and_may_be_renamed(project: Path) -> None:
    expected = written(project / "a" / "model.safetensors", b"weights")
    with counted_opens(project / "a" / "model.safetensors") as opens:
        assert policy_digest(project / "a") == policy_digest(project / "a") == expected
    assert opens.count == 1
    (project / "a").rename(project / "b")
    with counted_opens(project / "b" / "model.safetensors") as opens:
        assert policy_digest(project / "b") == expected
    assert opens.count == 0
    assert not STATE_FOLDER.exists(), "a small file is no other process's business"


def test_other_processes_do_not_read_a_large_file_again(project: Path) -> None:
    file = project / "large.safetensors"
    expected = written(file, bytes(KEPT_FROM))
    code = (
        "from pathlib import Path; from tasks.core.records.files import remembered_digest;"
        f"print(remembered_digest(Path({str(file)!r})))"
    )
    counts = []
    for _ in range(2):
        with counted_opens(file) as opens:
            answer = subprocess.run(
                [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True
            )
        assert answer.stdout.decode().strip() == expected, answer.stderr.decode()
        counts.append(opens.count)
    assert counts == [1, 0]


@pytest.mark.parametrize("size", [7, KEPT_FROM])
def test_a_file_that_changed_is_read_again(project: Path, size: int) -> None:
    file = project / "weights"
    first = written(file, b"a" * size)
    assert remembered_digest(file) == first
    second = written(file, b"b" * size)
    assert remembered_digest(file) == second != first, "at once, of the same size, in the same inode"


def test_another_file_of_the_same_size_and_time_is_told_apart(project: Path) -> None:
    """Archives give all their files one time."""
    file, other = project / "weights", project / "other"
    first, second = written(file, b"one"), written(other, b"two")
    for path in (file, other):
        os.utime(path, ns=(10**18, 10**18))
    before = fingerprint(project)
    assert remembered_digest(file) == first
    other.replace(file)
    assert remembered_digest(file) == second
    written(other, b"")
    assert fingerprint(project)[-1] != before[-1]


def test_what_other_processes_left_is_only_believed_if_it_can_be_read(project: Path) -> None:
    file = project / "large"
    expected = written(file, bytes(KEPT_FROM))
    found = file.stat()
    record = STATE_FOLDER / f"{found.st_dev}-{found.st_ino}.json"
    for content in ("{", '{"identity": [1, 2, 3, 4], "sha256": "0"}', "[]"):
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(content)
        assert remembered_digest(file) == expected
        file.touch()
