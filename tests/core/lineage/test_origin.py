"""The origin of an artifact is the record from the time it was made, not the present checkout."""

import subprocess
from pathlib import Path

from flows.cli.lineage import origin_lines
from tasks.core.config.params import Params
from tasks.core.lineage.dvc_lock import DvcLock
from tasks.core.lineage.git_state import GitState, git_state
from tasks.core.lineage.trace import Provenance, find_origin
from tasks.record_lineage.pipeline import Pipeline
from tasks.record_lineage.recording import record_pipeline


def test_an_old_artifacts_origin_is_the_recorded_one(pipeline: Pipeline, params: Params) -> None:
    root, lock = pipeline.layout.root, pipeline.lock
    record_pipeline(pipeline)
    then = git_state(root)
    identity = ("-c", "user.name=t", "-c", "user.email=t@t")
    subprocess.run(["git", *identity, "commit", "-q", "--allow-empty", "-m", "later"], cwd=root, check=True)
    (root / "params.yaml").write_text("seed: 1\n")
    now = git_state(root)
    assert now == GitState(now.commit, dirty=True) and now.commit != then.commit

    origin = find_origin(params.lineage, root, lock.task_versions)
    assert origin is not None and (origin.git, origin.params["seed"]) == (then, "0")
    assert find_origin(params.lineage, root, lock.task_versions | {"report": "0" * 64}) == origin
    today = Params.model_validate({**params.model_dump(mode="json"), "seed": 1})
    lines = list(origin_lines(provenance(lock), origin, today, root))
    assert f"code: commit {then.commit} (here is commit {now.commit} with changes)" in lines
    assert "  seed = 0 (here: 1)" in lines and "  update.epochs = 2" in lines
    assert f"parameters: {pipeline.source_tags['params_digest']}" in lines
    assert find_origin(params.lineage, root, lock.task_versions | {"score": "0" * 64}) is None


def test_an_artifact_without_a_record_has_no_origin(pipeline: Pipeline, params: Params, tmp_path: Path) -> None:
    root, lock = pipeline.layout.root, pipeline.lock
    assert find_origin(params.lineage, root, lock.task_versions) is None
    assert find_origin(params.lineage, tmp_path / "elsewhere", lock.task_versions) is None
    lines = list(origin_lines(provenance(lock), None, params, root))
    assert "in no finished run that MLflow knows" in lines[1] and git_state(root).commit in lines[2]
    assert not any(" = " in line for line in lines)


def provenance(lock: DvcLock) -> Provenance:
    return Provenance(lock.stages, (), lock.sources, ())
