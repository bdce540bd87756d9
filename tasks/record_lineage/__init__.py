"""Stage record_lineage: record the finished pipeline in MLflow; and the function that runners call during a run."""

import sys
from collections.abc import Callable

from tasks.core.config.params import Params
from tasks.core.interfaces.stage import StageContext
from tasks.core.lineage.mlflow_store import LineageError
from tasks.core.records.documents import write_document
from tasks.core.records.layout import Layout
from tasks.core.records.rollout_sets import RolloutSet, dev_set, training_set
from tasks.core.records.run_manifest import LineageRecord, PolicyFolder
from tasks.record_lineage.recording import Pipeline, record_iteration, record_pipeline, recordable_later

LIVE_STAGES: dict[str, Callable[[Layout, str], RolloutSet]] = {
    "update_policy": training_set,
    "evaluate_policy": dev_set,
}
"""Stages that give figures to a run in progress when they end, and their rollouts, some of which are then traced."""


def record_lineage(context: StageContext[Params]) -> None:
    """Record the whole run in MLflow and write data/lineage.json, which identifies it by its inputs.

    It is the last stage of the DAG: DVC writes a stage to dvc.lock after the stage ends, so every earlier stage is
    there. The file holds no run id (MLflow draws ids at random): equal runs leave equal bytes, and a run is found by
    its `pipeline_digest` tag. Raises LineageError when MLflow cannot be reached; `dvc repro` then tries again.
    """
    pipeline = Pipeline(context.layout, context.inputs)
    with recordable_later():
        recorded = record_pipeline(pipeline)
    selected = PolicyFolder(path=pipeline.policy_tags["dvc_path"], md5=pipeline.policy_tags["dvc_md5"])
    record = LineageRecord(
        pipeline_digest=pipeline.lock.digest,
        params_digest=pipeline.policy_tags["params_digest"],
        iteration=pipeline.selection.iteration,
        adapter_digest=pipeline.selection.adapter_digest,
        policy=selected,
        experiment=context.inputs.lineage.experiment,
        registered_model=recorded.model_name if recorded.model_version else None,
        task_versions=pipeline.lock.task_versions,
    )
    write_document(context.layout.lineage, record)


def record_stage(context: StageContext[Params], stage: str) -> None:
    """Add a stage's figures to the run in progress. Call it after each stage in a long-lived process (import: 1.6 s).

    A store that is down gives one warning and never stops a run: record_lineage records everything at the end.
    """
    if stage not in LIVE_STAGES or context.cache.get("lineage_is_down", None, lambda: [False])[0]:
        return
    played = LIVE_STAGES[stage](context.layout, context.key)
    try:
        record_iteration(
            Pipeline(context.layout, context.inputs), context.key, [played] if played.path.exists() else []
        )
    except LineageError as error:
        context.cache.get("lineage_is_down", None, lambda: [False])[0] = True
        unwatched = "the run goes on and can't be watched live; record_lineage records it at its end"
        print(f"{unwatched}: {error}", file=sys.stderr)
