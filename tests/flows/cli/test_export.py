"""The comparison with a package's verdicts, and bad input. The exports: tests/core/worlds/*/test_export.py."""

from pathlib import Path
from typing import Any

import pytest

from flows.cli.app import main
from flows.cli.export import comparison, differing
from flows.dag.version_stages import version_stages
from tasks.core.config.params import load_params
from tasks.core.interfaces.stage import StageContext
from tasks.core.interfaces.world_kind import PackageVerdicts, ScoredEpisode
from tasks.core.records.documents import write_document
from tasks.core.records.files import read_json, write_json
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import Attestation, StageVersion
from tasks.core.records.schemas import ROLLOUTS, SCORED_ROLLOUTS
from tasks.core.records.tables import write_rows
from tasks.core.registry.run_registry import params_of_run
from tasks.core.worlds.appworld.export import by_package_rule
from tasks.core.worlds.appworld.world import GAVE_UP
from tests.record_lineage.conftest import write_played


def row(task_id: str, success: bool) -> dict[str, Any]:
    return {"task_id": task_id, "scenario_id": task_id[0], "difficulty": 1, "evaluation_run": 0, "success": success}


ROWS = [row("a_1", True), row("a_2", False), row("b_1", False), row("b_2", True)]
OURS = {"a_1": True, "a_2": True, "b_1": False, "b_2": True}
"""By the package's rule a_2 is solved."""


def test_figures_as_recorded_by_the_packages_rule_and_by_the_package() -> None:
    said = PackageVerdicts("evaluate", solved=OURS, ours=OURS, rule="kinder", figures=(75.0, 50.0))
    assert differing(said) == []
    lines = comparison(ROWS, said)
    assert [line.split()[-2:] for line in (lines[1], lines[3])] == [["50.0", "0.0"], ["75.0", "50.0"]]
    assert "  75.0   50.0   (kinder)" in lines[2] and lines[-1] == "judged otherwise: none"


@pytest.mark.parametrize("task_id", list(OURS))
def test_a_task_that_is_judged_otherwise_is_named(task_id: str) -> None:
    said = PackageVerdicts("evaluate", solved=OURS | {task_id: not OURS[task_id]}, ours=OURS)
    assert differing(said) == [task_id] and comparison(ROWS, said)[-1].endswith(f": {task_id}")


def test_appworlds_rule_passes_who_gave_up_and_needs_a_verdict() -> None:
    def judged(passed: list[str], failed: list[str], success: bool = False) -> bool:
        return by_package_rule(ScoredEpisode("a_1", (), success, passed, failed))

    assert judged(["x"], [], True) and judged(["x"], [GAVE_UP])
    assert judged(["x"], [])  # all tests pass, but the episode never ended by itself
    assert not judged(["x"], ["y"])
    assert not judged([], [])  # ended by a hard limit: no verdict


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
        (write_edited, "the run in data/ is of world.name pocketworld, not appworld"),
    ):
        prepare()
        assert main(["export", "scores", "appworld", "test_normal", "out"]) == 1
        error = capsys.readouterr().err
        assert message in error and "Traceback" not in error
    assert not Path("out").exists()


@pytest.mark.parametrize("arguments", [["model", "out"], ["rollouts", "i001", "out"]])
def test_models_and_rollouts_need_a_run_and_a_new_folder(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", *arguments]) == 1
    assert "data/manifest.json: missing" in capsys.readouterr().err
    record_run("default")
    assert main(["export", *arguments]) == 1
    missing = "selection.json" if arguments[0] == "model" else "i001/rollouts.parquet"
    error = capsys.readouterr().err
    assert f"{missing}: missing" in error and error.count("\n") == 1
    assert not Path("out").exists()
    Path("out").write_text("mine")
    assert main(["export", *arguments]) == 2
    assert "out: exists and is not an empty folder; name a new one" in capsys.readouterr().err
    assert Path("out").read_text() == "mine"


def test_unknown_rollouts_and_versions_end_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    record_run("smoke")
    assert main(["export", "rollouts", "i099", "out"]) == 2
    assert "i099: no split or iteration of this run; there are dev, test_normal, test_challenge, i001" in (
        capsys.readouterr().err
    )
    assert main(["export", "model", "out", "--version", "7"]) == 2
    assert "has no version '7'; it has no versions; run the pipeline to its end" in capsys.readouterr().err
    assert not Path("out").exists()


def test_a_world_without_a_package_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", "scores", "nowhere", "test_normal", "out"]) == 1
    assert "no world is called 'nowhere': there are appworld, " in capsys.readouterr().err


def test_rollouts_of_other_knobs_than_those_of_a_run_begun_since_are_not_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    record_run("default")
    layout = Layout(tmp_path)
    write_rows(layout.rollouts("i001"), [], ROLLOUTS)
    ran_with = StageVersion(code="0" * 16, params="0" * 16)
    said = Attestation(stage="collect_rollouts", key="i001", version=ran_with, outs={})
    write_document(layout.attestation("collect_rollouts", "i001"), said)
    assert main(["export", "rollouts", "i001", "out"]) == 1
    error = capsys.readouterr().err
    assert "collect_rollouts@i001: ran with other knobs than" in error and error.count("\n") == 1


@pytest.mark.parametrize("older", [{"params": {"knob_of_before": 1}}, {"stages": None}])
def test_a_run_of_another_version_is_one_line_that_says_what_to_do(
    older: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    record_run("default")
    layout = Layout(tmp_path)
    write_json(layout.manifest, {**read_json(layout.manifest), **older})
    assert main(["export", "rollouts", "i001", "out"]) == 1
    error = capsys.readouterr().err
    assert "another version of loopline may have made this run" in error and error.count("\n") == 1
    assert params_of_run(layout) == load_params(layout.params)
