"""Tasks and verdicts of a recorded run as an evaluation dataset of MLflow, in a real SQLite store."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import mlflow
import mlflow.genai.datasets
import pandas as pd
import pytest
from mlflow.genai.scorers import scorer

from tasks.core.lineage import evaluation_dataset
from tasks.core.lineage.evaluation_dataset import JudgedEpisode, record_verdicts
from tasks.core.lineage.mlflow_store import Store, open_store
from tasks.core.processes.addresses import free_port
from tasks.record_lineage.pipeline import Pipeline
from tasks.record_lineage.recording import record_pipeline
from tests.record_lineage.test_traces import with_traces

pytestmark = pytest.mark.whole_runs

EPISODE = JudgedEpisode("pocketworld", "dev", "a_1", "a", 2, 0, "Pay.", "paid", 3, "completed", True, 1.0, "passed: x")


def store_of(pipeline: Pipeline) -> Store:
    return open_store(pipeline.params.lineage, pipeline.layout.root)


def datasets(store: Store) -> list[Any]:
    return list(store.client.search_datasets([store.experiment_id]))


@pytest.fixture
def opened(pipeline: Pipeline) -> tuple[Store, str]:
    """Return a store with a run in it."""
    store = store_of(pipeline)
    return store, str(store.client.create_run(store.experiment_id, run_name="play").info.run_id)


@pytest.fixture
def of_process(monkeypatch: pytest.MonkeyPatch, pipeline: Pipeline) -> None:
    """Make the run's store and experiment those of this process, as for somebody who works with the dataset."""
    store = store_of(pipeline)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.uri)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", store.experiment_id)


@pytest.mark.usefixtures("of_process")
def test_a_run_has_its_tests_verdicts_as_a_dataset_that_mlflow_evaluates(pipeline: Pipeline) -> None:
    recorded = record_pipeline(pipeline)
    store = store_of(pipeline)
    run = store.client.get_run(recorded.run_id)
    (named,) = [one for one in run.inputs.dataset_inputs if one.dataset.source_type == "mlflow_evaluation_dataset"]
    dataset = mlflow.genai.datasets.get_dataset(name=named.dataset.name)
    assert (dataset.digest, dataset.experiment_ids) == (named.dataset.digest, [store.experiment_id])
    tags = dataset.tags
    assert tags["model_version"] == f"{recorded.model_name}/{recorded.model_version}"
    assert tags["run_id"] == recorded.run_id and tags["pipeline_digest"] == pipeline.lock.digest
    table: pd.DataFrame = dataset.to_df()
    assert len(table) == 2 * 6 * 2 == int(tags["records"]) == int(tags["episodes"]), "splits, tasks, runs"
    solved = {
        (row["split"], row["task_id"]): found["success"]
        for row, found in zip(table.inputs, table.expectations, strict=True)
    }
    assert solved == {
        (split, f"{split}_{task}"): task.startswith("a")
        for split in ("test_normal", "test_challenge")
        for task in ("a1", "a2", "a3", "b1", "b2", "b3")
    }
    assert {row["turns"] for row in table.outputs} == {1} and all(row["prompt"] for row in table.inputs)

    @scorer
    def agrees(outputs: dict[str, Any], expectations: dict[str, Any]) -> bool:
        return (outputs["end_reason"] == "completed") == expectations["success"]

    found = mlflow.genai.evaluate(data=dataset, scorers=[agrees])
    assert found.metrics["agrees/mean"] == 0.5


def test_recording_twice_adds_no_record(pipeline: Pipeline) -> None:
    recorded, client = record_pipeline(pipeline), store_of(pipeline).client
    (before,), inputs = datasets(store_of(pipeline)), client.get_run(recorded.run_id).inputs.dataset_inputs
    record_pipeline(Pipeline(pipeline.layout, pipeline.params))
    (after,) = datasets(store_of(pipeline))
    assert (after.dataset_id, after.digest) == (before.dataset_id, before.digest)
    assert len(client.get_run(recorded.run_id).inputs.dataset_inputs) == len(inputs)


def test_an_attempt_that_was_ended_is_completed(opened: tuple[Store, str], monkeypatch: pytest.MonkeyPatch) -> None:
    store, run_id = opened
    judged = [replace(EPISODE, task_id=f"a_{number}") for number in range(5)]
    monkeypatch.setattr(evaluation_dataset, "_PER_REQUEST", 2)
    with monkeypatch.context() as ended:
        ended.setattr(evaluation_dataset, "_input", None)
        with pytest.raises(TypeError):
            record_verdicts(store, run_id, judged[:3], {})
    record_verdicts(store, run_id, judged, {})
    (dataset,) = datasets(store)
    assert dataset.profile == '{"num_records": 5}'
    assert len(store.client.get_run(run_id).inputs.dataset_inputs) == 1


@pytest.mark.usefixtures("of_process")
def test_first_rollouts_go_before_second_ones_where_there_are_too_many(
    opened: tuple[Store, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, run_id = opened
    monkeypatch.setattr(evaluation_dataset, "MOST_RECORDS", 3)
    judged = [replace(EPISODE, task_id=task, run=run) for task in ("a", "b") for run in (0, 1)]
    record_verdicts(store, run_id, [replace(one, prompt="x" * 9000 + "end") for one in judged], {})
    (dataset,) = datasets(store)
    assert (dataset.tags["episodes"], dataset.tags["records"]) == ("4", "3")
    inputs = list(mlflow.genai.datasets.get_dataset(dataset_id=dataset.dataset_id).to_df().inputs)
    assert {(row["task_id"], row["rollout"]) for row in inputs} == {("a", 1), ("b", 1), ("a", 2)}
    assert all(len(row["prompt"]) == 2000 and row["prompt"].endswith("end") for row in inputs)


def test_no_traces_mean_no_dataset(pipeline: Pipeline) -> None:
    record_pipeline(with_traces(pipeline, 0))
    assert datasets(store_of(pipeline)) == []


def test_a_store_that_is_away_costs_a_warning(opened: tuple[Store, str]) -> None:
    """The run's server ends after the run was recorded."""
    store, run_id = opened
    uri = f"http://127.0.0.1:{free_port()}"
    away = replace(store, client=mlflow.MlflowClient(uri), uri=uri)
    with pytest.warns(UserWarning, match=r"no evaluation dataset .*traced_rollouts: 0"):
        record_verdicts(away, run_id, [EPISODE], {})


def test_a_store_that_takes_no_datasets_loses_no_run(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """MLflow's store of files has none."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "files").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    with pytest.warns(UserWarning, match=r"no evaluation dataset .*python -m tasks.record_lineage"):
        recorded = record_pipeline(pipeline)
    assert store_of(pipeline).client.get_run(recorded.run_id).info.status == "FINISHED"
