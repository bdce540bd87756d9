"""A whole run in a real SQLite store."""

import errno
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import traceback
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mlflow.exceptions import MlflowException

from tasks.core.config.engine import EngineSection
from tasks.core.config.lineage import LineageConfig
from tasks.core.config.params import Params
from tasks.core.config.splits import TEST_SPLITS
from tasks.core.interfaces.stage import StageContext
from tasks.core.lineage.mlflow_store import LineageError, explained, open_store, tracking_uri
from tasks.core.policies.checkpoint_files import policy_digest
from tasks.core.processes.addresses import free_port
from tasks.core.processes.running import pipeline_process
from tasks.core.records.documents import read_document, write_document
from tasks.core.records.files import ArtifactError, read_json, write_json
from tasks.core.records.layout import Layout
from tasks.core.records.scores import Scores
from tasks.core.records.training import UpdateTimings
from tasks.core.registry.run_registry import open_registry
from tasks.record_lineage import record_lineage, record_stage
from tasks.record_lineage.__main__ import main
from tasks.record_lineage.recording import Pipeline, Recorded, record_iteration, record_pipeline
from tests.finished_run import scores, training_budget
from tests.record_lineage.conftest import copied, git, write_lock, write_training

pytestmark = pytest.mark.whole_runs


def runs(pipeline: Pipeline) -> list[Any]:
    store = open_store(pipeline.params.lineage, pipeline.layout.root)
    return list(store.client.search_runs([store.experiment_id]))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, finished: Path, params: Params) -> tuple[Pipeline, Recorded]:
    """Record a run for tests that only read it."""
    pipeline = Pipeline(copied(finished, tmp_path_factory.mktemp("recorded")), params)
    return pipeline, record_pipeline(pipeline)


def again(pipeline: Pipeline) -> Pipeline:
    """Return the same working tree as a new process sees it: nothing cached."""
    return Pipeline(pipeline.layout, pipeline.params)


def head(root: Path) -> str:
    return subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True).stdout.strip()


def test_a_run_holds_params_metrics_datasets_and_commit(kept: tuple[Pipeline, Recorded]) -> None:
    pipeline, _ = kept
    (run,) = runs(pipeline)
    assert run.info.status == "FINISHED"
    assert run.data.params["update.loss.clip_epsilon"] == "0.1"
    assert not any(name.startswith("previous") for name in run.data.params)
    assert run.data.tags["git_commit"] == run.data.tags["mlflow.source.git.commit"] == head(pipeline.layout.root)
    assert run.data.tags["git_dirty"] == "false"
    assert run.data.tags["task_version.score"] == pipeline.lock.task_versions["score"]
    store = open_store(pipeline.params.lineage, pipeline.layout.root)
    history = store.client.get_metric_history(run.info.run_id, "rollouts/mean_return")
    assert [(metric.step, metric.value) for metric in history] == [(1, 0.2), (2, 0.4), (3, pytest.approx(0.6))]
    assert [metric.step for metric in store.client.get_metric_history(run.info.run_id, "update/kl")] == [1, 3]
    assert [metric.step for metric in store.client.get_metric_history(run.info.run_id, "dev/tgc")] == [0, 2, 3]
    groups = {name.partition("/")[0] for name in run.data.metrics}
    assert groups == {"rollouts", "update", "dev", "selection", *TEST_SPLITS}, "MLflow draws charts by group"
    assert not any("." in name for name in run.data.metrics)


def test_what_is_no_result_is_a_parameter(kept: tuple[Pipeline, Recorded]) -> None:
    pipeline, _ = kept
    (run,) = runs(pipeline)
    found = read_document(pipeline.layout.score("test_normal"), Scores)
    assert run.data.params["test_normal/scenarios"] == str(found.scenarios)
    assert run.data.params["dev/tasks"].isdecimal()
    assert not any(name.endswith(("/tasks", "/scenarios")) for name in run.data.metrics)


def test_a_run_takes_as_long_as_its_process_and_its_experiment_is_one_of_training(
    kept: tuple[Pipeline, Recorded],
) -> None:
    pipeline, _ = kept
    (run,) = runs(pipeline)
    assert run.info.start_time == pytest.approx(1000 * pipeline_process().started_at, abs=20)
    client = open_store(pipeline.params.lineage, pipeline.layout.root).client
    experiment = client.get_experiment_by_name(pipeline.params.lineage.experiment)
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"


def test_an_experiment_of_an_older_version_is_tagged_too(pipeline: Pipeline) -> None:
    store = open_store(pipeline.params.lineage, pipeline.layout.root)
    made = store.client.create_experiment("older")
    again_opened = open_store(LineageConfig(experiment="older"), pipeline.layout.root)
    assert again_opened.experiment_id == made
    assert store.client.get_experiment(made).tags["mlflow.experimentKind"] == "custom_model_development"


def test_a_run_is_described_and_has_its_report(kept: tuple[Pipeline, Recorded]) -> None:
    pipeline, recorded = kept
    (run,) = runs(pipeline)
    description = run.data.tags["mlflow.note.content"]
    test_normal = scores("test_normal")
    assert f"{test_normal.base_tgc:.1f} / {test_normal.base_sgc:.1f}" in description
    assert f"in {pipeline.params.world.name} by the profile" in description
    store = open_store(pipeline.params.lineage, pipeline.layout.root)
    listed = {item.path for item in store.client.list_artifacts(recorded.run_id, "report")}
    assert "report/index.html" in listed


def test_dataset_digests_are_those_of_dvc(kept: tuple[Pipeline, Recorded]) -> None:
    pipeline, _ = kept
    (run,) = runs(pipeline)
    inputs = {item.dataset.name: item.dataset for item in run.inputs.dataset_inputs}
    expected = {path: md5 for path, md5 in pipeline.lock.artifacts.items() if path.endswith(".parquet")}
    assert expected
    assert {path: inputs[path].digest for path in expected} == expected
    assert inputs["data/world"].digest.endswith(".dir")
    source = json.loads(inputs["data/iterations/i002/rollouts.parquet"].source)
    assert source == {
        "path": "data/iterations/i002/rollouts.parquet",
        "md5": expected["data/iterations/i002/rollouts.parquet"],
        "rev": head(pipeline.layout.root),
    }
    assert {item.source_type for item in inputs.values()} == {"dvc"}


def test_the_selected_policy_becomes_a_version_that_leads_back(kept: tuple[Pipeline, Recorded]) -> None:
    pipeline, recorded = kept
    client = open_store(pipeline.params.lineage, pipeline.layout.root).client
    version = client.get_model_version(recorded.model_name, recorded.model_version)
    assert version.tags["dvc_path"] == "data/iterations/i002/policy"
    assert version.tags["dvc_md5"] == pipeline.lock.artifacts["data/iterations/i002/policy"]
    assert version.tags["iteration"] == "i002"
    assert version.tags["dataset.data/world"] == pipeline.lock.artifacts["data/world"]
    assert version.tags["parent_version"] == "none"
    assert client.get_registered_model(recorded.model_name).aliases == {"challenger": version.version}
    assert version.run_id == recorded.run_id
    (run,) = runs(pipeline)
    model_id = run.outputs.model_outputs[0].model_id
    model = client.get_logged_model(model_id)
    linked = {metric.key: (metric.value, metric.dataset_name, metric.dataset_digest) for metric in model.metrics}
    rollouts = "data/scores/test_normal_rollouts.parquet"
    assert linked["test_normal/tgc"] == (70.0, rollouts, pipeline.lock.artifacts[rollouts])
    folder = Path(model.artifact_location.removeprefix("file://"))
    assert {"adapter_config.json", "README.md", "MLmodel", "evaluation"} <= {file.name for file in folder.iterdir()}
    assert version.description == (folder / "README.md").read_text()
    assert not list(folder.rglob("optimizer*"))
    assert (folder / "adapter_model.safetensors").read_bytes() == b"i002"


@pytest.mark.parametrize(("turns", "table"), [(20, "training_budget_rollouts"), (40, "rollouts")])
def test_scores_at_the_training_budget_are_linked_to_their_own_rollouts(
    turns: int, table: str, layout: Layout, params: Params
) -> None:
    plain = scores("test_normal")
    found = plain.model_copy(update={"training_budget": training_budget(plain, turns, tgc=60.0)})
    write_document(layout.score("test_normal"), found)
    write_lock(layout, params)
    pipeline = Pipeline(layout, params)
    record_pipeline(pipeline)
    (run,) = runs(pipeline)
    client = open_store(params.lineage, layout.root).client
    model = client.get_logged_model(run.outputs.model_outputs[0].model_id)
    linked = {metric.key: (metric.value, metric.dataset_name) for metric in model.metrics}
    assert linked["test_normal/tgc"] == (70.0, "data/scores/test_normal_rollouts.parquet")
    assert linked["test_normal/training_budget/tgc"] == (60.0, f"data/scores/test_normal_{table}.parquet")
    assert run.data.params["test_normal/training_budget/limits/max_turns"] == str(turns)
    assert run.data.params["test_normal/training_budget/test_limits/max_turns"] == "40"
    assert not any(name.startswith("test_challenge/training_budget") or "limits" in name for name in linked)


def test_scores_that_are_not_of_the_weights_make_no_version(layout: Layout, params: Params) -> None:
    pipeline = Pipeline(layout, params.model_copy(update={"engine": EngineSection.of("scripted")}))
    record_lineage(StageContext(layout, pipeline.params))
    (run,) = runs(pipeline)
    assert (run.info.status, run.data.metrics["test_normal/tgc"]) == ("FINISHED", 70.0)
    assert "model_version" not in run.data.tags and run.inputs.dataset_inputs
    client = open_store(params.lineage, layout.root).client
    assert not client.search_registered_models() and not run.outputs.model_outputs
    assert json.loads(layout.lineage.read_text())["registered_model"] is None


def test_recording_twice_adds_nothing(pipeline: Pipeline) -> None:
    first = record_pipeline(pipeline)
    assert record_pipeline(again(pipeline)) == first
    assert len(runs(pipeline)) == 1
    client = open_store(pipeline.params.lineage, pipeline.layout.root).client
    assert len(client.search_model_versions(f"name = '{first.model_name}'")) == 1
    assert len(client.get_metric_history(first.run_id, "rollouts/mean_return")) == 3


def test_a_run_watched_live_is_completed_and_not_doubled(pipeline: Pipeline) -> None:
    record_iteration(pipeline, "i001")
    record_iteration(again(pipeline), "i001")
    record_iteration(again(pipeline), "i002")
    (live,) = runs(pipeline)
    assert live.info.status == "RUNNING"
    recorded = record_pipeline(again(pipeline))
    assert recorded.run_id == live.info.run_id
    client = open_store(pipeline.params.lineage, pipeline.layout.root).client
    assert [metric.step for metric in client.get_metric_history(recorded.run_id, "rollouts/mean_return")] == [1, 2, 3]
    record_iteration(again(pipeline), "i001")
    assert len(runs(pipeline)) == 1


def test_a_run_keeps_the_commit_that_it_began_with(pipeline: Pipeline) -> None:
    root = pipeline.layout.root
    record_iteration(pipeline, "i001")
    began = head(root)
    git(root, "-c", "user.name=t", "-c", "user.email=t@t", "commit", "--allow-empty", "-qm", "meanwhile")
    recorded = record_pipeline(again(pipeline))
    (run,) = runs(pipeline)
    client = open_store(pipeline.params.lineage, root).client
    version = client.get_model_version(recorded.model_name, recorded.model_version)
    files = [item.dataset for item in run.inputs.dataset_inputs if item.dataset.source_type == "dvc"]
    sources = {json.loads(file.source)["rev"] for file in files}
    assert {run.data.tags["git_commit"], version.tags["git_commit"], *sources} == {began} != {head(root)}


def test_a_recording_cut_off_in_the_middle_is_completed(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("tasks.record_lineage.recording._log_datasets", _crash)
        with pytest.raises(KeyboardInterrupt):
            record_pipeline(pipeline)
    assert record_pipeline(again(pipeline)).model_version == "1"
    (run,) = runs(pipeline)
    assert run.info.status == "FINISHED"
    client = open_store(pipeline.params.lineage, pipeline.layout.root).client
    assert len(client.get_metric_history(run.info.run_id, "test_normal/tgc")) == 1


def _crash(*arguments: object) -> None:
    raise KeyboardInterrupt


def test_wall_clock_figures_make_no_new_run_but_other_results_do(pipeline: Pipeline) -> None:
    record_pipeline(pipeline)
    write_document(pipeline.layout.update_timings("i003"), UpdateTimings(tokens_per_s=3.0))
    _relock(pipeline)
    record_pipeline(again(pipeline))
    assert len(runs(pipeline)) == 1
    write_training(pipeline.layout, "i003", seed=77)
    _relock(pipeline)
    assert record_pipeline(again(pipeline)).model_version == "2"
    assert len(runs(pipeline)) == 2


def _no_hard_links(*_: Any) -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted")


def _relock(pipeline: Pipeline) -> None:
    """Update the md5s in dvc.lock to the present files."""
    import hashlib

    import yaml

    path = pipeline.layout.root / "dvc.lock"
    lock = yaml.safe_load(path.read_text())
    for stage in lock["stages"].values():
        for entry in (*stage["deps"], *stage["outs"]):
            file = pipeline.layout.root / entry["path"]
            if file.is_file():
                entry["md5"] = hashlib.md5(file.read_bytes()).hexdigest()
    path.write_text(yaml.safe_dump(lock))


def test_the_stage_leaves_the_same_bytes_each_time(layout: Layout, params: Params, empty_store: Path) -> None:
    record_lineage(StageContext(layout, params))
    first = layout.lineage.read_bytes()
    assert json.loads(first)["policy"]["path"] == "data/iterations/i002/policy"
    layout.lineage.unlink()
    shutil.copy2(empty_store, layout.root)
    record_lineage(StageContext(layout, params))
    assert layout.lineage.read_bytes() == first


def test_an_unfinished_pipeline_is_refused_by_name(pipeline: Pipeline) -> None:
    pipeline.layout.selection.unlink()
    with pytest.raises(ArtifactError, match=r"selection\.json: missing"):
        record_pipeline(pipeline)


def test_a_server_that_is_down_stops_no_run_and_is_explained(
    layout: Layout, params: Params, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    _check_that_training_goes_on(layout, params, capsys, "start that server")


def test_no_traceback_has_the_password_of_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://user:hunter2@127.0.0.1:{free_port()}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(LineageError) as failed:
        open_store(LineageConfig(), tmp_path)
    assert "hunter2" not in "".join(traceback.format_exception(failed.value))


@pytest.mark.parametrize(
    ("uri", "remedy"),
    [
        (
            "mysql+pymysql://me:secret@127.0.0.1/x",
            "at mysql+pymysql://127.0.0.1/x: No module named 'pymysql'; install ",
        ),
        ("sqlite:///", "names no file, so nothing would be kept; set MLFLOW_TRACKING_URI=sqlite:///mlflow.db"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite:///file::memory:?uri=true", "names no file"),
    ],
)
def test_a_store_that_cannot_be_used_stops_no_run_and_the_advice_fits(
    layout: Layout,
    params: Params,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    uri: str,
    remedy: str,
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    _check_that_training_goes_on(layout, params, capsys, remedy)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (
            "ffffffffffff",
            r"a newer MLflow than [\d.]+ has written this store .*; use that MLflow here, or set MLFLOW_TR",
        ),
        ("451aebb31d03", r"out-of-date database schema .* run 'mlflow db upgrade"),
    ],
)
def test_a_store_of_another_mlflow_is_named_and_only_an_older_one_can_be_upgraded(
    tmp_path: Path, empty_store: Path, schema: str, said: str
) -> None:
    shutil.copy2(empty_store, tmp_path / "mlflow.db")
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database:
        database.execute("UPDATE alembic_version SET version_num = ?", [schema])
        database.commit()
    with pytest.raises(LineageError, match=said):
        open_store(LineageConfig(), tmp_path)


def test_a_deleted_experiment_stops_no_run_and_can_be_brought_back(
    layout: Layout, params: Params, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(params.lineage, layout.root)
    store.client.delete_experiment(store.experiment_id)
    _check_that_training_goes_on(layout, params, capsys, f"restore --experiment-id {store.experiment_id}` brings it")


def _check_that_training_goes_on(
    layout: Layout, params: Params, capsys: pytest.CaptureFixture[str], remedy: str
) -> None:
    """One line is printed during the run, whatever the number of stages, and one at the end, with the remedy."""
    context = StageContext(layout, params, key="i001")
    for _ in range(2):
        record_stage(context, "update_policy")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "the run goes on and can't be watched live; record_lineage records it at its end: MLflow at "
    )
    with pytest.raises(LineageError) as found:
        record_lineage(StageContext(layout, params))
    (line,) = str(found.value).splitlines()
    assert remedy in line and "secret" not in line
    assert line.endswith(
        "The run is not in MLflow, but dvc.lock and data/ hold all of it: fix this, then run "
        "`python -m tasks.record_lineage`"
    )
    assert not layout.lineage.exists()


@pytest.mark.parametrize("name", ["what now?", "#1", "50%3F?a=b"])
def test_any_name_of_the_checkout_has_its_store_in_the_checkout(
    tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    root = tmp_path / name
    root.mkdir()
    shutil.copy2(empty_store, root)
    monkeypatch.chdir(root)
    store = open_store(LineageConfig(), root)
    (root / "note").write_text("kept")
    store.client.log_artifact(store.client.create_run(store.experiment_id).info.run_id, "note")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db?timeout=5")
    assert open_store(LineageConfig(), root).experiment_id == store.experiment_id
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert {path.name for path in root.iterdir()} == {"mlflow.db", "mlartifacts", "note", ".loopline"} - {
        folder for folder in (".loopline",) if not (root / folder).exists()
    }


@pytest.mark.parametrize(
    ("given", "opened"),
    [
        ("", "sqlite:///{root}/mlflow.db"),
        ("sqlite:///runs/own.db", "sqlite:///{root}/runs/own.db"),
        ("sqlite:////var/own.db", "sqlite:////var/own.db"),
        ("sqlite:///:memory:", "sqlite:///:memory:"),
        ("http://server:5000", "http://server:5000"),
    ],
)
def test_a_relative_database_is_the_project_s_wherever_the_process_works(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, given: str, opened: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", given)
    assert tracking_uri(layout.root) == opened.format(root=layout.root.resolve())


def test_a_moved_checkout_takes_its_store_along(pipeline: Pipeline, tmp_path: Path) -> None:
    """MLflow holds whole paths of files, also for runs to come; the old place may hold another checkout by now."""
    record_pipeline(pipeline)
    moved = Layout(pipeline.layout.root.rename(tmp_path.with_name("moved it's")))
    registry = open_registry(moved.root, pipeline.params)
    with registry.weights(registry.find("challenger")) as files:
        assert policy_digest(files) == policy_digest(moved.policy("i002"))
    store = open_store(pipeline.params.lineage, moved.root)
    run = store.client.create_run(store.experiment_id)
    assert run.info.artifact_uri.startswith((moved.root / "mlartifacts").as_uri())


def test_a_server_that_asks_who_one_is_is_not_to_be_started() -> None:
    asks = r"401 .*; it asks who you are: set MLFLOW_TRACKING_USERNAME"
    with pytest.raises(LineageError, match=asks), explained("http://mlflow:5000"):
        raise MlflowException("API request to endpoint /x failed with error code 401 != 200. Response body: ''")


def test_stages_without_figures_open_no_store(layout: Layout, params: Params) -> None:
    (layout.root / "mlflow.db").unlink()
    record_stage(StageContext(layout, params, key="i001"), "collect_rollouts")
    assert not (layout.root / "mlflow.db").exists()


def test_one_command_records_a_finished_pipeline(layout: Layout) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tasks.record_lineage"], cwd=layout.root, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "model version loopline-pocketworld-pocket/1" in done.stdout
    assert done.stderr == ""


def test_a_run_is_recorded_with_its_own_knobs_after_params_yaml_was_edited(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(layout.root)
    path = layout.root / "params.yaml"
    path.write_text(path.read_text().replace("learning_rate: 0.001", "learning_rate: 0.5"))
    assert main() == 0
    store = open_store(LineageConfig(), layout.root)
    (run,) = store.client.search_runs([store.experiment_id])
    assert run.data.params["update.learning_rate"] == "0.001"


def test_a_pipeline_with_stages_that_have_not_run_is_not_recorded(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(layout.root)
    versions = read_json(layout.stage_versions)
    write_json(layout.stage_versions, versions | {"score": {"code": "b" * 16, "params": "b" * 16}})
    assert main() == 1
    assert "not finished (score has not run since); run `dvc repro`" in capsys.readouterr().err
    assert not open_store(LineageConfig(), layout.root).client.search_registered_models()


def test_a_temporary_experiment_records_in_the_project_around_it(tmp_path: Path) -> None:
    copy = tmp_path / ".dvc" / "tmp" / "exps" / "standalone" / "tmp1"
    copy.mkdir(parents=True)
    assert tracking_uri(copy) == f"sqlite:///{tmp_path.resolve()}/mlflow.db"


def test_a_database_that_another_process_made_meanwhile_is_kept(
    tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mlflow.db"
    monkeypatch.setattr("mlflow.MlflowClient.search_experiments", lambda *_, **__: shutil.copy2(empty_store, path))
    open_store(LineageConfig(experiment="other"), tmp_path)
    assert path.read_bytes() == empty_store.read_bytes()


def test_a_database_whose_making_was_killed_is_made_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds on a file system without hard links, too."""
    script = (
        "import os, signal, sys; from pathlib import Path; import alembic.op as op\n"
        "from tasks.core.config.lineage import LineageConfig\n"
        "from tasks.core.lineage.mlflow_store import open_store\n"
        "op.batch_alter_table = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n"
        "open_store(LineageConfig(), Path(sys.argv[1]))"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=Path(__file__).parents[2])
    assert killed.returncode == -signal.SIGKILL
    monkeypatch.setattr("os.link", _no_hard_links)
    assert open_store(LineageConfig(), tmp_path).client.search_experiments()
