"""A checkout by git has the bytes of the repository, on which versions of stages depend."""

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_line_endings_stay_under_autocrlf(tmp_path: Path) -> None:
    made, cloned = tmp_path / "made", tmp_path / "cloned"
    files = (".gitattributes", ".ci/env", "dvc.yaml", "flows/stage.py")
    for name in files:
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, made / name)
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "made"]):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments], cwd=made, check=True)
    subprocess.run(["git", "clone", "-q", "-c", "core.autocrlf=true", made, cloned], check=True)
    assert [name for name in files if (cloned / name).read_bytes() != (ROOT / name).read_bytes()] == []
