"""Tasks and verdicts of a scored run as an evaluation dataset of MLflow, which `mlflow.genai.evaluate` takes.

A record is an episode: its task are the inputs, the policy's last answer the outputs, and the world's verdict is what a
scorer is expected to say of them. Episodes without a verdict, since the world broke, are left out by who calls.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from tasks.core.lineage.mlflow_store import LineageError, Store, explained

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput, EvaluationDataset, Run

MOST_RECORDS = 1000
"""Episodes of a dataset at most: the first rollout of each task, then the second ones, and so on."""
MOST_CHARS = 2000
"""Longest end of a prompt, of an answer and of the reasons of a verdict."""
_PER_REQUEST = 200
_SOURCE = "mlflow_evaluation_dataset"
"""MLflow's name for a dataset of this kind among the inputs of a run."""


@dataclass(frozen=True)
class JudgedEpisode:
    """An episode with the world's verdict on it."""

    world: str
    split: str
    task_id: str
    scenario_id: str
    difficulty: int
    run: int
    """Number of the rollout of its task, from 0."""
    prompt: str
    answer: str
    """The policy's last turn."""
    turns: int
    end_reason: str
    success: bool
    score: float
    """The return."""
    rationale: str

    def record(self, run_id: str) -> dict[str, Any]:
        """Return the record; `run_id`: the MLflow run that played it."""
        named = {name: getattr(self, name) for name in ("world", "split", "task_id", "scenario_id", "difficulty")}
        return {
            "inputs": {**named, "rollout": self.run + 1, "prompt": self.prompt[-MOST_CHARS:]},
            "outputs": {"answer": self.answer[-MOST_CHARS:], "turns": self.turns, "end_reason": self.end_reason},
            "expectations": {
                "success": self.success,
                "return": self.score,
                "rationale": self.rationale[:MOST_CHARS],
            },
            "source": {"source_type": "CODE", "source_data": {"source_id": run_id}},
        }


def record_verdicts(store: Store, run_id: str, judged: Sequence[JudgedEpisode], tags: Mapping[str, str]) -> None:
    """Write the dataset and name it among the run's inputs, unless it is there.

    A store that takes no such datasets, or none just now, causes a warning: the run is recorded by then.
    """
    try:
        with explained(store.uri):
            _record(store, run_id, judged, tags)
    except (LineageError, NotImplementedError) as error:
        reason = str(error) or "this store has none"
        warnings.warn(
            f"no evaluation dataset of tasks and verdicts: {reason} (it needs a database, and a server as new as this "
            "MLflow; `python -m tasks.record_lineage`, or the same `loopline score`, writes what is missing, "
            "lineage.traced_rollouts: 0 asks for none)",
            stacklevel=2,
        )


def _record(store: Store, run_id: str, judged: Sequence[JudgedEpisode], tags: Mapping[str, str]) -> None:
    run = store.client.get_run(run_id)
    named = run.inputs.dataset_inputs if run.inputs else []
    if not judged or any(one.dataset.source_type == _SOURCE for one in named):
        return
    kept = sorted(judged, key=lambda one: (one.run, one.split, one.task_id))[:MOST_RECORDS]
    counted = {"episodes": str(len(judged)), "records": str(len(kept))}
    dataset = _dataset(store, run, {"run_id": run_id, **tags, **counted})
    _write_records(store, dataset.dataset_id, [one.record(run_id) for one in kept])
    store.client.log_inputs(run_id, [_input(store.client.get_dataset(dataset.dataset_id))])


def _dataset(store: Store, run: "Run", tags: Mapping[str, str]) -> "EvaluationDataset":
    """Return the dataset of a run that was ended in between, which is found by its tag, or a new one."""
    found = store.client.search_datasets([store.experiment_id], f"tags.run_id = '{run.info.run_id}'", max_results=1)
    if found:
        return found[0]
    return store.client.create_dataset(f"verdicts of {run.info.run_name}", store.experiment_id, dict(tags))


def _write_records(store: Store, dataset_id: str, records: Sequence[dict[str, Any]]) -> None:
    """Write the records; one with the inputs of a record that is there takes its place.

    The dataset's own `merge_records` writes to the process's global store.
    """
    from mlflow.tracking._tracking_service.utils import _get_store

    service, left = _get_store(store.uri), iter(records)  # type: ignore[no-untyped-call]
    while batch := list(islice(left, _PER_REQUEST)):
        service.upsert_dataset_records(dataset_id, batch)


def _input(dataset: "EvaluationDataset") -> "DatasetInput":
    """Return the dataset as a run names it among its inputs."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    named = Dataset(
        dataset.name, dataset.digest, _SOURCE, dataset.source.to_json(), dataset.schema, profile=dataset.profile
    )
    return DatasetInput(named, [InputTag("mlflow.data.context", "evaluation")])
