"""dvc.lock rewritten stage by stage: the bytes are DVC's own, whoever wrote the file in between."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from dvc.utils.serialize import dumps_yaml, loads_yaml
from hypothesis import given
from hypothesis import strategies as st

from flows.dag.lock_file import LockFile


@pytest.mark.parametrize(
    "value",
    [
        "1" * 32,
        "123e4567890123456789012345678901",
        "0x12",
        "null",
        "yes",
        "",
        "it's: # odd",
        "two\nlines",
        "a/long/path" * 10,
        "long words " * 10,
        "9183cd0447d9b7eb7c28b88241275f3f.dir",
        None,
        True,
        0.003,
        1e-5,
        [],
        {},
    ],
)
def test_every_value_comes_through_as_dvc_writes_it(value: object, tmp_path: Path) -> None:
    path = tmp_path / "dvc.lock"
    content = {"schema": "2.0", "stages": {"a@i001": {"cmd": "python -m x", "outs": [{"path": "däta", "md5": value}]}}}
    lock_file = LockFile(path)
    with lock_file.rewritten() as lock:
        lock.update(content)
    assert path.read_text() == dumps_yaml(content)
    for reader in (lock_file, LockFile(path)):
        with reader.rewritten() as lock:
            assert lock == content
        assert path.read_text() == dumps_yaml(content)


NAMES = st.sampled_from(["prepare_world", "update_policy@i001", "update_policy@i002", "score@a b", "12"])
ENTRIES = st.fixed_dictionaries({"cmd": st.sampled_from(["python -m x", "it's: # odd", "two\nlines", None, "1e3"])})
EDITS = st.lists(st.tuples(st.sampled_from(["put", "remove", "touch", "strangers"]), NAMES, ENTRIES), max_size=12)


@given(EDITS)
def test_any_course_of_edits_leaves_the_bytes_that_dvc_writes(edits: list[tuple[str, str, dict[str, Any]]]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "dvc.lock"
        lock_file = LockFile(path)
        expected: dict[str, Any] = {"schema": "2.0", "stages": {}}
        for edit, name, entry in edits:
            if edit == "put":
                expected["stages"][name] = entry
            elif edit == "remove":
                expected["stages"].pop(name, None)
            elif edit == "strangers":
                expected["stages"][name] = {"cmd": "somebody else's"}
                path.write_text(dumps_yaml(expected))
            with lock_file.rewritten() as lock:
                lock.setdefault("schema", "2.0")
                stages = lock.setdefault("stages", {})
                if edit == "put":
                    stages[name] = entry
                elif edit == "remove":
                    stages.pop(name, None)
            assert path.read_text() == dumps_yaml(expected)
            assert loads_yaml(path.read_text()) == expected


def test_a_change_that_fails_is_neither_written_nor_remembered(tmp_path: Path) -> None:
    lock_file = LockFile(tmp_path / "dvc.lock")
    with lock_file.rewritten() as lock:
        lock["stages"] = {"a": {"cmd": "python -m x"}}
    before = (tmp_path / "dvc.lock").read_bytes()
    with pytest.raises(KeyError), lock_file.rewritten() as lock:
        lock["stages"]["b"] = {"cmd": "python -m y"}
        raise KeyError
    assert (tmp_path / "dvc.lock").read_bytes() == before
    with lock_file.rewritten() as lock:
        assert lock == {"stages": {"a": {"cmd": "python -m x"}}}
    assert [path.name for path in tmp_path.iterdir()] == ["dvc.lock"]


def test_an_entry_of_two_stages_is_written_twice(tmp_path: Path) -> None:
    entry = {"cmd": "python -m x", "deps": [{"path": "data"}]}
    lock_file = LockFile(tmp_path / "dvc.lock")
    with lock_file.rewritten() as lock:
        lock["stages"] = {"a": entry, "b": entry}
    assert (tmp_path / "dvc.lock").read_text() == dumps_yaml(
        {"stages": {"a": entry, "b": {**entry, "deps": [{"path": "data"}]}}}
    )
