"""The versions of stages: what of params.yaml is in them, and what is printed of changes."""

from pathlib import Path

import pytest
import yaml

from flows.dag.stages import STAGES, Stage
from flows.dag.version_stages import stage_version, version_stages
from tasks.core.config.params import Params, load_params
from tasks.core.config.stage_inputs import StageInputs, knob
from tasks.core.interfaces.stage import StageContext
from tasks.core.records.documents import read_document
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import StageVersions

ROOT = Path(__file__).resolve().parents[3]


class SamplingInputs(StageInputs):
    seed: int
    temperature: float = knob("collection.temperature")


def test_version_moves_with_the_params_that_it_reads_alone() -> None:
    stage = Stage("s", "tasks.begin_courses:begin_courses", SamplingInputs)
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
