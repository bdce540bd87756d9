"""The comparison with the package's verdicts, and bad input. The examination: tests/core/worlds/bfcl/test_export.py."""

from pathlib import Path
from typing import Any

import pytest

from flows.bfcl_export import comparison, differing
from flows.cli.app import main
from flows.dag.version_stages import version_stages
from tasks.core.config.params import load_params
from tasks.core.interfaces.stage import StageContext
from tasks.core.records.layout import Layout
from tasks.core.records.schemas import SCORED_ROLLOUTS
from tasks.core.records.tables import write_rows
from tasks.core.worlds.bfcl.export import Examined
from tests.record_lineage.conftest import write_played


def row(kind: str, success: bool) -> dict[str, Any]:
    return {"task_id": f"multi_turn_{kind}_3", "success": success}


ROWS = [row("base", True), row("miss_func", False), row("miss_param", True), row("long_context", False)]
AGREED = {one["task_id"]: Examined(one["success"], "", [], []) for one in ROWS}


def test_accuracies_are_by_category_and_over_all() -> None:
    assert differing(ROWS, AGREED) == []
    lines = comparison(ROWS, AGREED)
    assert lines[1].split() == ["multi_turn_base", "100.0", "100.0"]
    assert lines[-2].split() == ["all", "50.0", "50.0"] and lines[-1].endswith("none")


@pytest.mark.parametrize("task_id", list(AGREED))
def test_a_task_that_is_judged_otherwise_is_named(task_id: str) -> None:
    other = AGREED | {task_id: Examined(not AGREED[task_id].valid, "", [], [])}
    assert differing(ROWS, other) == [task_id] and comparison(ROWS, other)[-1].endswith(f": {task_id}")


def test_a_folder_that_exists_is_refused_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", "bfcl", "test_normal", str(tmp_path)]) == 1
    assert "exists already; name a new folder" in capsys.readouterr().err


def record_run(profile: str) -> None:
    """Record the parameters of a profile, as a run does."""
    main(["configure", profile])
    layout = Layout(Path.cwd())
    version_stages(StageContext(layout, load_params(layout.params)))


def write_edited() -> None:
    """Write score rollouts of the recorded run, and another profile into params.yaml since."""
    layout = Layout(Path.cwd())
    write_played(layout, load_params(layout.params), set())
    main(["configure", "bfcl"])


def test_bad_input_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    scored = Path("data/scores/test_normal_rollouts.parquet")
    for prepare, message in (
        (lambda: None, "data/manifest.json: missing"),
        (lambda: main(["configure", "bfcl"]), "data/manifest.json: missing"),
        (lambda: record_run("default"), "test_normal_rollouts.parquet"),
        (lambda: write_rows(scored, [], SCORED_ROLLOUTS), "no rollouts of"),
        (write_edited, "the run in data/ is of world.name pocketworld; only BFCL's rollouts"),
    ):
        prepare()
        assert main(["export", "bfcl", "test_normal", "out"]) == 1
        error = capsys.readouterr().err
        assert message in error and "Traceback" not in error
    assert not Path("out").exists()
