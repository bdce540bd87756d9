"""Nothing half-written, and nothing left over."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.core.records.files import replacing


def test_a_failing_block_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(OSError, match="full"), replacing(path) as temporary:
        temporary.write_text("half")
        raise OSError("full")
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]
    assert path.read_text() == "old"


def test_what_a_killed_process_left_is_removed_by_the_next_try(tmp_path: Path) -> None:
    code = """
import os, signal
from pathlib import Path
from tasks.core.records.files import replacing
blocks = {name: replacing(Path(name)) for name in ("a.json", "folder")}
for name, block in blocks.items():
    temporary = block.__enter__()
    temporary.mkdir() if name == "folder" else temporary.write_text("half")
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False)
    assert len(list(tmp_path.iterdir())) == 2
    (tmp_path / f".a.json.{os.getppid()}.tmp").write_text("of a process that still writes")
    for name in ("a.json", "folder"):
        with replacing(tmp_path / name) as temporary:
            temporary.write_text("whole")
    assert {file.name for file in tmp_path.iterdir()} == {"a.json", "folder", f".a.json.{os.getppid()}.tmp"}
