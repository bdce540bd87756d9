"""A score as a run in MLflow. Recording the same score again adds nothing."""

from pathlib import Path

from tasks.core.config.params import Params
from tasks.core.lineage.mlflow_store import explained, open_store, tracking_uri
from tasks.core.lineage.params_and_metrics import flat_params, is_constant
from tasks.core.records.comparison import ModelScore
from tasks.core.records.documents import dotted_numbers

KEY = "score_key"
"""Tag by which a score's run is found again."""


def record_score(score: ModelScore, params: Params, folder: Path, root: Path) -> None:
    """Record a score: parameters, figures, what it was made from, and the files in `folder`. Raises LineageError."""
    store, tags = open_store(params.lineage, root), {KEY: score.key}
    with explained(tracking_uri(root)):
        if store.find_run(tags, finished=True) is not None:
            return
        run = store.find_run(tags, finished=False)
        if run is None:
            run = store.client.create_run(store.experiment_id, None, tags | _tags(score), f"score {score.name}")
        run_id = str(run.info.run_id)
        store.log_params(run_id, flat_params(params))
        store.log_numbers(run_id, {0: numbers(score)})
        store.client.log_artifacts(run_id, str(folder), "score")
        store.client.set_terminated(run_id, "FINISHED")


def numbers(score: ModelScore) -> dict[str, float]:
    """Return the figures as `<split>/*`, named as a trained policy's are."""
    found = dotted_numbers(score.scores.model_dump(mode="json", exclude={"levels", "own"}))
    for level, figures in score.scores.levels.items():
        prefix = "" if level == "all" else f"per_difficulty.{level}."
        found |= {f"{prefix}{name}": value for name, value in dotted_numbers(figures.model_dump(mode="json")).items()}
    found |= {"mean_return": score.mean_return, "void_rollouts": float(score.void_rollouts)}
    found |= score.scores.own.named() if score.scores.own is not None else {}
    used = {"usage": score.usage, "world_usage": score.world_usage}
    found |= dotted_numbers({name: one.model_dump(mode="json") for name, one in used.items() if one is not None})
    return {f"{score.split}/{name.replace('.', '/')}": value for name, value in found.items() if not is_constant(name)}


def _tags(score: ModelScore) -> dict[str, str]:
    made_from = {name: str(value) for name, value in score.lineage.model_dump(mode="json").items() if value is not None}
    commit = {"mlflow.source.git.commit": score.lineage.git_commit} if score.lineage.git_commit else {}
    return {"scored_model": score.model, "model_kind": score.kind, "split": score.split} | made_from | commit
