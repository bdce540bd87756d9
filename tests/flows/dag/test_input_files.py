"""The content of a folder that a knob names is an input like any other: DVC notices its change, before a run too."""

import shutil
from pathlib import Path

import pytest

from tests.flows.tiny_project import configure, make_project, run, succeed

pytestmark = pytest.mark.whole_runs

PREPARE = ("-m", "flows.cli", "run", "--without-prefect", "--until", "prepare_policy")


def test_a_changed_file_of_the_base_policy_prepares_it_again(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    base = project / "bases" / "x"
    shutil.copytree(project / "data" / "base_policies" / "pocket", base)
    (base / "digests.json").unlink()
    configure(project, "--refresh", "policy.source=bases/x")
    succeed(project, *PREPARE)
    (base / "README.md").touch()
    assert "all 3 stages are up to date" in succeed(project, *PREPARE)
    (base / "README.md").write_text("another base")
    assert "modified:           bases/x" in succeed(project, "-m", "dvc", "status", "prepare_policy")
    assert "2 run, 0 from cache, 1 up to date" in succeed(project, *PREPARE)
    assert (project / "data" / "policy" / "README.md").read_text() == "another base"

    base.rename(project / "moved")
    lock = (project / "dvc.lock").read_bytes()
    assert "up to date" in succeed(project, "-m", "dvc", "repro", "--allow-missing", "prepare_policy")
    assert (project / "dvc.lock").read_bytes() == lock
    told = run(project, *PREPARE)
    assert told.returncode == 1 and "Traceback" not in told.stderr
    assert "policy.source: bases/x is no folder here" in told.stderr
