"""A stage runs with the knobs and the code that version_stages recorded, or is refused in one line."""

import shutil
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from flows.dag import recorded
from flows.dag import version_stages as versions
from flows.dag.recorded import NotAsRecorded, as_recorded
from flows.dag.stages import find_stage
from flows.dag.version_stages import ChangedMeanwhile, ForeignCode, version_stages
from tasks.core.config.params import Params
from tasks.core.interfaces.stage import ProcessCache, StageContext
from tasks.core.records.files import ArtifactError, read_json, write_json
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import recorded_params
from tests.flows.tiny_project import ROOT, configure, copy_project, run, succeed

STAGE = find_stage("filter_tasks")
FILE = "tasks/filter_tasks.py"


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy the project's code; the copy counts as the code that this process has imported."""
    for room in ("tasks", "flows"):
        shutil.copytree(ROOT / room, tmp_path / "code" / room, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(versions, "CODE", tmp_path / "code")
    monkeypatch.setattr(recorded, "CODE", tmp_path / "code")
    return tmp_path / "code"


@pytest.fixture
def layout(code: Path, tmp_path: Path) -> Layout:
    """Make a folder in which version_stages has run."""
    layout = Layout(tmp_path / "project")
    layout.root.mkdir()
    shutil.copy(ROOT / "params.yaml", layout.params)
    version_stages(StageContext(layout, params_in(layout)))
    return layout


def params_in(layout: Layout) -> Params:
    from tasks.core.config.params import load_params

    return load_params(layout.params)


def run_block(
    layout: Layout, edit: Path | None = None, put_back: bool = False, cache: ProcessCache | None = None
) -> None:
    """Do what a runner does, and edit a file in the middle."""
    with as_recorded(STAGE, recorded_params(layout), layout, cache or ProcessCache()):
        if edit is not None:
            content = edit.read_bytes()
            edit.write_bytes(content + b"# edited\n")
            if put_back:
                edit.write_bytes(content)


def test_a_stage_whose_code_is_as_recorded_runs(layout: Layout) -> None:
    run_block(layout)


def test_code_that_was_edited_since_is_refused(layout: Layout, code: Path) -> None:
    with (code / FILE).open("a") as stream:
        stream.write("# edited\n")
    with pytest.raises(NotAsRecorded, match=f"{FILE} is not the code that the version of filter_tasks stands for"):
        run_block(layout)


def test_code_that_is_gone_is_refused(layout: Layout, code: Path) -> None:
    (code / FILE).unlink()
    with pytest.raises(NotAsRecorded, match=f"{FILE} is gone"):
        run_block(layout)


@pytest.mark.parametrize("put_back", [False, True])
def test_code_that_was_edited_meanwhile_and_may_have_run_is_refused(layout: Layout, code: Path, put_back: bool) -> None:
    with pytest.raises(NotAsRecorded, match=f"{FILE} was edited while filter_tasks ran"):
        run_block(layout, code / FILE, put_back)


def test_other_stages_code_may_be_edited_meanwhile(layout: Layout, code: Path) -> None:
    run_block(layout, code / "tasks/core/pages/charts.py")


def imported(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make it look as if this process had imported `file`."""
    module = ModuleType("tasks.imported")
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, module.__name__, module)


def test_code_that_was_imported_before_the_edit_runs(
    layout: Layout, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported(code / FILE, monkeypatch)
    monkeypatch.setattr(recorded, "imports_began", lambda: (code / FILE).stat().st_ctime + 1)
    run_block(layout, code / FILE)


def test_code_imported_before_an_edit_that_was_undone_is_refused(
    layout: Layout, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is as recorded, but this process may hold the file's content from in between."""
    imported(code / FILE, monkeypatch)
    with pytest.raises(NotAsRecorded, match="was edited after this process had started"):
        run_block(layout)


def test_a_clock_that_was_set_back_is_no_edit(layout: Layout, code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imported(code / FILE, monkeypatch)
    written, cache = (code / FILE).stat().st_ctime_ns, ProcessCache()
    monkeypatch.setattr(recorded, "imports_began", lambda: written / 1e9 - 10_790)
    monkeypatch.setattr(time, "time_ns", lambda: written - 10_800_000_000_000)
    run_block(layout, cache=cache)
    monkeypatch.setattr(time, "time_ns", lambda: written + 1)  # three hours later
    run_block(layout, cache=cache)


def test_versions_that_do_not_match_the_manifest_are_refused(layout: Layout) -> None:
    content = read_json(layout.stage_versions)
    write_json(layout.stage_versions, {**content, "filter_tasks": {"code": "0" * 16, "params": "0" * 16}})
    with pytest.raises(ArtifactError, match="filter_tasks has another version than"):
        run_block(layout)


def test_edited_knobs_are_named_and_not_used_yet(layout: Layout, caplog: pytest.LogCaptureFixture) -> None:
    before = recorded_params(layout)
    layout.params.write_text(layout.params.read_text().replace("max_difficulty: 2", "max_difficulty: 1"))
    run_block(layout)
    assert "filter_tasks runs as recorded, params.yaml has changed since: tasks.max_difficulty: 2 -> 1" in caplog.text
    assert recorded_params(layout) == before
    caplog.clear()
    layout.params.write_text("in: [the middle of an edit")
    run_block(layout)
    assert not caplog.text


def test_an_edit_while_versions_are_read_is_one_error(
    layout: Layout, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = versions.run_manifest

    def slowly(params: Params, params_file: Path) -> object:
        found = made(params, params_file)
        (code / FILE).touch()
        return found

    monkeypatch.setattr(versions, "run_manifest", slowly)
    with pytest.raises(ChangedMeanwhile, match=r"filter_tasks\.py was edited while version_stages read it"):
        version_stages(StageContext(layout, params_in(layout)))


def test_another_checkouts_code_is_refused(layout: Layout) -> None:
    (layout.root / "tasks").mkdir()
    with pytest.raises(ForeignCode, match="python imports the code of"):
        version_stages(StageContext(layout, params_in(layout)))


@pytest.fixture
def finished(finished_project: Path, tmp_path: Path) -> Path:
    """Return a copy of a finished run, for tests that change it."""
    return copy_project(finished_project, tmp_path / "finished")


@pytest.mark.services
def test_a_single_stage_runs_with_what_is_recorded(finished: Path) -> None:
    layout = Layout(finished)
    before = layout.tasks.read_bytes()
    configure(finished, "--refresh", "tasks.max_difficulty=1")
    done = run(finished, "-m", "dvc", "repro", "--single-item", "--force", "filter_tasks")
    assert done.returncode == 0, done.stderr
    assert "filter_tasks runs as recorded" in done.stdout + done.stderr
    assert layout.tasks.read_bytes() == before
    configure(finished, "--refresh", "tasks.max_difficulty=2")
    assert "every link holds" in succeed(finished, "-m", "flows.cli", "lineage", "data/tasks/train.parquet")


@pytest.mark.services
def test_a_single_stage_of_edited_code_is_one_line_and_writes_nothing(finished: Path) -> None:
    layout = Layout(finished)
    before = layout.tasks.read_bytes()
    (finished / FILE).write_text((finished / FILE).read_text() + "# edited\n")
    done = run(finished, "-m", "flows.stage", "filter_tasks")
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert f"filter_tasks: {FILE} is not the code that the version of filter_tasks stands for" in done.stderr
    assert layout.tasks.read_bytes() == before


@pytest.mark.services
def test_a_file_committed_by_hand_is_a_broken_link(finished: Path) -> None:
    score = Layout(finished).score("test_normal")
    content = score.read_text()
    score.unlink()  # it is a link into DVC's cache
    score.write_text(content.replace("\n", "\n\n", 1))
    succeed(finished, "-m", "dvc", "commit", "--force", "score@test_normal")
    done = run(finished, "-m", "flows.cli", "lineage", "test_normal.tgc")
    assert done.returncode == 1
    assert "BROKEN: data/scores/test_normal.json: score@test_normal wrote" in done.stdout


@pytest.mark.services
def test_status_names_what_would_run_and_why(finished: Path) -> None:
    assert succeed(finished, "-m", "flows.cli", "status").endswith("stages are up to date\n")
    configure(finished, "--refresh", "scoring.rollouts_per_task=2")
    with (finished / "tasks/core/pages/charts.py").open("a") as stream:
        stream.write("# edited\n")
    lines = succeed(finished, "-m", "flows.cli", "status").splitlines()
    score = next(line for line in lines if line.startswith("  score"))
    assert score.startswith("  score (test_normal, test_challenge): scoring.rollouts_per_task: ")
    report = next(line for line in lines if line.startswith("  report"))
    assert "code: tasks/core/pages/charts.py" in report
    assert not any(line.strip().startswith(("update_policy", "collect_rollouts")) for line in lines)
