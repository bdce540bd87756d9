"""Rescoring model versions with the world and base policy of this working tree. Loads torch: import it late."""

from pathlib import Path

from tasks.core.config.splits import MEASURED_SPLITS, TEST_SPLITS, Split
from tasks.core.config.stage_inputs import RescoringInputs
from tasks.core.config.world_settings import WorldMetric
from tasks.core.evaluation.behaviour import behaviour
from tasks.core.evaluation.playing import plan_split, play_policy
from tasks.core.evaluation.scored_rows import Row, acted_rollouts, metric_score, outcomes_by_policy
from tasks.core.interfaces.stage import StageContext
from tasks.core.lineage.dvc_lock import read_lock
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.loading import load_chat_format
from tasks.core.records.files import ArtifactError, read_json
from tasks.core.records.schemas import SCORED_ROLLOUTS, SELECTED_POLICY
from tasks.core.records.tables import write_rows
from tasks.core.registry.model_registry import Registry, Version
from tasks.core.registry.version_evaluation import FOLDER, VersionEvaluation

BASE_TAG = "dataset.data/policy"


def rescored_evaluation(
    registry: Registry, version: Version, context: StageContext[RescoringInputs], folder: Path
) -> VersionEvaluation:
    """Play all splits with a version's weights; write the rollouts into `folder`.

    Raises ArtifactError when the version was trained from a different base policy than the one in data/policy.
    """
    require_same_base(version, context)
    splits: tuple[Split, ...] = MEASURED_SPLITS
    with registry.weights(version) as files:
        played = {
            split: play_policy(
                context, plan_split(context, split), files, SELECTED_POLICY, f"version {version.number}"
            ).rows
            for split in splits
        }
        stored = files / FOLDER / "params.json"
        params: dict[str, str] = read_json(stored) if stored.exists() else {}
    for split, rows in played.items():
        write_rows(folder / f"{version.number}_{split}_rollouts.parquet", rows, SCORED_ROLLOUTS)
    chat = load_chat_format(context.layout.base_policy)
    return evaluation_of(params, played, chat, context.inputs.world.settings.own_metric)


def evaluation_of(
    params: dict[str, str], played: dict[Split, list[Row]], chat: ChatFormat, metric: WorldMetric | None = None
) -> VersionEvaluation:
    """Return the evaluation of a version's rollouts, in the form in which versions store it."""
    measured = {split: behaviour(list(acted_rollouts(played[split], chat))) for split in TEST_SPLITS}
    own_metric = {split: score for split, rows in played.items() if (score := metric_score(metric, rows)) is not None}
    outcomes = outcomes_by_policy([row for rows in played.values() for row in rows])
    return VersionEvaluation(params, outcomes, measured, own_metric)


def require_same_base(version: Version, context: StageContext[RescoringInputs]) -> None:
    """Check that the version was trained from this base policy. Raises ArtifactError otherwise.

    An adapter for another base model would still load, but mean nothing.
    """
    inputs, layout = context.inputs, context.layout
    name = layout.base_policy.relative_to(layout.root).as_posix()
    ours = read_lock(layout.root / "dvc.lock", inputs.previous, inputs.evaluated).artifacts.get(name)
    theirs = version.tags.get(BASE_TAG)
    if ours != theirs:
        raise ArtifactError(
            f"version {version.number} was trained from the base policy {theirs}, but {name} is {ours}; "
            f"check out commit {version.tags.get('git_commit', '?')[:12]} and run `dvc checkout`, or `dvc pull`"
        )
