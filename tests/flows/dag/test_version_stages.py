"""The versions of stages: what of params.yaml is in them, and what is printed of changes."""

import shutil
from pathlib import Path

import pytest
import yaml

from flows.dag.left_overs import SET_ASIDE, clear_left_overs, left_overs
from flows.dag.stages import STAGES, Stage
from flows.dag.version_stages import stage_version, version_stages
from flows.params_file import params_of
from tasks.core.config.params import Params, load_params
from tasks.core.config.stage_inputs import StageInputs, knob
from tasks.core.interfaces.stage import StageContext
from tasks.core.records.documents import read_document
from tasks.core.records.files import digest
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import StageVersions
from tests.flows.tiny_project import configure, copy_project, make_project, run, succeed

ROOT = Path(__file__).resolve().parents[3]


class SamplingInputs(StageInputs):
    seed: int
    temperature: float = knob("collection.temperature")


def test_version_moves_with_the_params_that_it_reads_alone() -> None:
    stage = Stage("s", "tasks.tabulate_curves:tabulate_curves", SamplingInputs)
    params = Params()
    hotter = params.collection.model_copy(update={"temperature": 2.0})
    more = params.collection.model_copy(update={"rollouts_per_task": 8})
    version = stage_version(stage, params, ROOT)
    assert stage_version(stage, params.model_copy(update={"collection": more}), ROOT) == version
    for other in (params.model_copy(update={"collection": hotter}), params.model_copy(update={"seed": 1})):
        found = stage_version(stage, other, ROOT)
        assert (found.code == version.code, found.params == version.params) == (True, False)


def test_every_stage_has_a_version_under_the_default_parameters() -> None:
    params = load_params(ROOT / "params.yaml")
    versions = {stage.name: stage_version(stage, params, ROOT) for stage in STAGES}
    assert len({version.digest for version in versions.values()}) == len(STAGES)


def test_changes_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data").mkdir()
    for room in ("tasks", "flows", "data/base_policies"):
        (tmp_path / room).symlink_to(ROOT / room)
    layout, params = Layout(tmp_path), load_params(ROOT / "params.yaml")

    def printed(params: Params) -> list[str]:
        layout.params.write_text(yaml.safe_dump(params.model_dump(mode="json")))
        version_stages(StageContext(layout, params))
        return capsys.readouterr().out.splitlines()

    assert printed(params) == printed(params) == []
    faster = params.model_copy(update={"update": params.update.model_copy(update={"learning_rate": 0.5})})
    was = params.update.learning_rate
    change = f"changed: update.learning_rate: {was} -> 0.5 (update_policy, report, record_lineage)"
    assert printed(faster) == [change]
    code = read_document(layout.stage_versions, StageVersions).root["score"].code
    layout.stage_versions.write_text(layout.stage_versions.read_text().replace(code, "0" * 16))
    assert printed(faster) == ["changed: code (score)"]
    layout.manifest.unlink()
    assert printed(params) == []


@pytest.fixture
def played(tmp_path: Path) -> Layout:
    """Make three iterations, each with some artifacts and with a line of its own in each."""
    layout = Layout(tmp_path)
    for key in ("i000", "i001", "i002", "i003"):
        for path in (layout.metrics(key), layout.rollouts(key), layout.evaluation(key), layout.policy(key) / "a.bin"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{path.name} of {key}")
    return layout


def names(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def test_artifacts_of_iterations_that_are_no_longer_asked_for_are_moved_away(played: Layout) -> None:
    before = names(played.data)
    (played.data / "iterations/notes.txt").write_text("mine")
    (line,) = clear_left_overs(played, params_of("drill", ["iterations=2", "evaluation.every=2"]))
    (aside,) = (played.root / SET_ASIDE).iterdir()
    assert line.startswith(f"moved to {SET_ASIDE.as_posix()}/{aside.name}: 7 artifacts of iterations that ")
    moved = {"iterations/i000/metrics.json", "iterations/i000/rollouts.parquet", "evaluations/i001.json"}
    moved |= {path for path in before if "i003" in path}
    assert names(aside) == moved and names(played.data) == before - moved | {"iterations/notes.txt"}
    assert (aside / "iterations/i003/policy/a.bin").read_text() == "a.bin of i003"
    assert not (played.data / "iterations/i003").exists()
    assert not [*clear_left_overs(played, params_of("drill", ["iterations=2", "evaluation.every=2"]))]


def test_an_iteration_that_no_longer_collects_leaves_no_rollouts(played: Layout) -> None:
    once = params_of("drill", ["iterations=3", "evaluation.every=1", "collection.every=0"])
    assert {path.relative_to(played.data).as_posix() for path in left_overs(played, once)} == {
        "iterations/i000/metrics.json",
        "iterations/i000/rollouts.parquet",
        "iterations/i002/rollouts.parquet",
        "iterations/i003/rollouts.parquet",
    }


@pytest.mark.services
def test_a_run_made_shorter_and_longer_again_has_its_iterations_from_the_cache(
    finished_project: Path, tmp_path: Path
) -> None:
    folder = copy_project(finished_project, tmp_path / "project")
    before = digest(folder / "data" / "iterations"), digest(folder / "data" / "evaluations")
    configure(folder, "--refresh", "iterations=0")
    succeed(folder, "-m", "flows.cli", "run", "--without-prefect", "--until", "select_checkpoint")
    assert [path.name for path in (folder / "data" / "iterations").iterdir()] == ["i000"]
    assert {path.name[:4] for path in (folder / "data" / "evaluations").iterdir()} == {"i000"}
    configure(folder, "--refresh", "iterations=1")
    said = succeed(folder, "-m", "dvc", "repro", "select_checkpoint")
    for stage in ("collect_rollouts@i001", "update_policy@i001", "evaluate_policy@i001"):
        assert f"Stage '{stage}' is cached" in said
    assert (digest(folder / "data" / "iterations"), digest(folder / "data" / "evaluations")) == before


@pytest.mark.whole_runs
def test_a_changed_file_of_the_base_policy_prepares_it_again(tmp_path: Path) -> None:
    """The content of a folder that a knob names is an input: DVC notices its change, before a run too."""
    prepare = ("-m", "flows.cli", "run", "--without-prefect", "--until", "prepare_policy")
    project = make_project(tmp_path / "project")
    base = project / "bases" / "x"
    shutil.copytree(project / "data" / "base_policies" / "pocket", base)
    (base / "digests.json").unlink()
    configure(project, "--refresh", "policy.source=bases/x")
    succeed(project, *prepare)
    (base / "README.md").touch()
    assert "all 3 stages are up to date" in succeed(project, *prepare)
    (base / "README.md").write_text("another base")
    assert "modified:           bases/x" in succeed(project, "-m", "dvc", "status", "prepare_policy")
    assert "2 run, 0 from cache, 1 up to date" in succeed(project, *prepare)
    assert (project / "data" / "policy" / "README.md").read_text() == "another base"

    base.rename(project / "moved")
    lock = (project / "dvc.lock").read_bytes()
    assert "up to date" in succeed(project, "-m", "dvc", "repro", "--allow-missing", "prepare_policy")
    assert (project / "dvc.lock").read_bytes() == lock
    told = run(project, *prepare)
    assert told.returncode == 1 and "Traceback" not in told.stderr
    assert "policy.source: bases/x is no folder here" in told.stderr
