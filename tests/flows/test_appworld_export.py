"""The comparison with the package's verdicts, and bad input. The export: tests/core/worlds/appworld/test_export.py."""

from pathlib import Path
from typing import Any

import pytest

from flows.appworld_export import comparison, differing
from flows.cli.app import main
from flows.dag.version_stages import version_stages
from tasks.core.config.params import load_params
from tasks.core.interfaces.stage import StageContext
from tasks.core.records.layout import Layout
from tasks.core.records.schemas import SCORED_ROLLOUTS
from tasks.core.records.tables import write_rows
from tasks.core.worlds.appworld.episode import GAVE_UP
from tasks.core.worlds.appworld.export import PackageScores
from tests.record_lineage.conftest import write_played


def row(task_id: str, passed: list[str], failed: list[str], **changes: Any) -> dict[str, Any]:
    verdict = {"tests_passed": passed, "tests_failed": failed, "success": not failed}
    return {"task_id": task_id, "scenario_id": task_id[0], "difficulty": 1, "evaluation_run": 0} | verdict | changes


ROWS = [
    row("a_1", ["x"], []),
    row("a_2", ["x"], [GAVE_UP]),
    row("b_1", ["x"], ["y"]),
    row("b_2", [], [], success=False),  # ended by a hard limit: no verdict
    row("c_1", ["x"], [], success=False),  # all tests pass, but the episode never ended by itself
]
SAID = {"a_1": True, "a_2": True, "b_1": False, "b_2": False, "c_1": True}


def test_our_verdicts_are_compared_by_the_packages_rule() -> None:
    agreed = PackageScores(60.0, 66.7, SAID)
    assert differing(ROWS, agreed) == []
    lines = comparison(ROWS, agreed)
    assert [line.split()[-2:] for line in lines[1:2]] == [["20.0", "0.0"]]
    assert "  60.0   66.7" in lines[2] and lines[3].endswith("  60.0   66.7") and lines[4].endswith("none")


@pytest.mark.parametrize("task_id", list(SAID))
def test_a_task_that_is_judged_otherwise_is_named(task_id: str) -> None:
    scores = PackageScores(0.0, 0.0, SAID | {task_id: not SAID[task_id]})
    assert differing(ROWS, scores) == [task_id] and comparison(ROWS, scores)[-1].endswith(f": {task_id}")


def record_run(profile: str) -> None:
    """Record the parameters of a profile, as a run does."""
    main(["configure", profile])
    layout = Layout(Path.cwd())
    version_stages(StageContext(layout, load_params(layout.params)))


def write_edited() -> None:
    """Write score rollouts of the recorded run, and another profile into params.yaml since."""
    layout = Layout(Path.cwd())
    write_played(layout, load_params(layout.params), set())
    main(["configure", "appworld"])


def test_bad_input_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for prepare, message in (
        (lambda: None, "data/manifest.json: missing"),
        (lambda: main(["configure", "appworld"]), "data/manifest.json: missing"),
        (lambda: record_run("default"), "test_normal_rollouts.parquet"),
        (lambda: write_rows(Path("data/scores/test_normal_rollouts.parquet"), [], SCORED_ROLLOUTS), "no rollouts of"),
        (write_edited, "the run in data/ is of world.name pocketworld; only AppWorld's rollouts"),
    ):
        prepare()
        assert main(["export", "appworld", "test_normal", "out"]) == 1
        error = capsys.readouterr().err
        assert message in error and "Traceback" not in error
    assert not Path("out").exists()
